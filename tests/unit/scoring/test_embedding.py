"""φ: a half-whitened PCA of public features, and the direction of a row in it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedaux.privacy.clipping import clip_rows, unit_rows
from fedaux.scoring.embedding import embed, public_map, publish


def cloud(rng: np.random.Generator, size: int, width: int, shift: float = 0.0) -> np.ndarray:
    return rng.normal(size=(size, width)) * np.linspace(3.0, 0.2, width) + shift


def test_public_map_is_a_half_whitened_pca() -> None:
    rows = cloud(np.random.default_rng(0), 4000, 10, 5.0)
    mean, basis = public_map(rows, 6)
    mapped = (rows - mean) @ basis
    covariance = np.cov(mapped, rowvar=False)
    assert np.allclose(covariance, np.diag(np.diag(covariance)), atol=1e-10)
    # half-whitening: the variance of a direction becomes the root of what it was, up to one common scale
    eigenvalues = np.sort(np.linalg.eigvalsh(np.cov(rows, rowvar=False)))[::-1][:6]
    ratio = np.diag(covariance) / np.sqrt(eigenvalues)
    assert np.allclose(ratio, ratio[0], rtol=1e-6)
    assert np.median(np.linalg.norm(mapped, axis=1)) == pytest.approx(1.0)


@settings(deadline=None)
@given(hnp.arrays(np.float64, (3, 4), elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_a_direction_has_norm_one_or_none_whatever_the_row_was(rows: np.ndarray) -> None:
    found = unit_rows(rows)
    norms = np.linalg.norm(found, axis=1)
    usable = np.isfinite(rows).all(axis=1) & (rows != 0).any(axis=1)
    assert np.allclose(norms[usable], 1.0, atol=1e-12)
    assert not found[~usable].any()
    assert np.array_equal(found[1:2], unit_rows(rows[1:2]))  # each row by itself


def test_a_row_and_twice_that_row_look_alike() -> None:
    rows = cloud(np.random.default_rng(1), 300, 5)
    public = publish(rows, 4)
    centre = public["mean"].astype(np.float64)
    assert np.allclose(embed(public, centre + 2 * (rows - centre)), embed(public, rows))


def test_public_arrays_cannot_smuggle_in_an_axis() -> None:
    """Broadcasting a mean of shape (1, n, H) would let records share one clipped row."""
    public = publish(cloud(np.random.default_rng(0), 200, 4), 3)
    with pytest.raises(ValueError, match="'mean' has shape"):
        embed({**public, "mean": np.zeros((1, 4, 4), np.float32)}, np.zeros((4, 4)))
    for norm in (clip_rows, unit_rows):
        with pytest.raises(ValueError, match="one row per record"):
            norm(np.zeros((2, 2, 2)))
