"""Rows in the unit ball, in exact integers, each by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedaux.privacy.clipping import GRID, clip_rows, max_norm, quantize, unit_rows


@settings(deadline=None)
@given(hnp.arrays(np.float64, (3, 4), elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_clipped_rows_lie_in_the_unit_ball_whatever_they_were(rows: np.ndarray) -> None:
    found = clip_rows(rows)
    assert np.isfinite(found).all()
    assert (np.linalg.norm(found, axis=1) <= 1 + 1e-12).all()
    for row, clipped in zip(rows, found, strict=True):
        if np.isfinite(row).all() and np.linalg.norm(row) <= 1:
            assert np.array_equal(row, clipped)
        elif not np.isfinite(row).all():
            assert not clipped.any()


def test_a_row_is_clipped_by_itself() -> None:
    rows = np.random.default_rng(0).normal(size=(6, 3)) * 5
    assert np.array_equal(clip_rows(rows)[2:4], clip_rows(rows[2:4]))


@settings(max_examples=500, deadline=None)
@given(st.integers(1, 3 * GRID))
def test_equal_shares_never_add_up_to_more_than_one_record(many: int) -> None:
    assert many * int(max_norm(np.array(1.0 / many))) <= GRID
    assert int(max_norm(np.array(1.0 / many))) == GRID // many


def test_a_share_shortens_and_one_changes_nothing() -> None:
    rows = unit_rows(np.random.default_rng(0).normal(size=(50, 6)))
    assert np.array_equal(quantize(rows, np.ones(50)), quantize(rows))
    shares = np.random.default_rng(1).uniform(0, 1, 50)
    assert (np.linalg.norm(quantize(rows, shares), axis=1) <= max_norm(shares)).all()
    assert np.allclose(quantize(rows, shares) / GRID, rows * shares[:, None], atol=1e-5)
    assert not quantize(rows, np.zeros(50)).any()


@pytest.mark.parametrize("width", [1, 2, 3, 1000, 123_457])
def test_norms_are_right_at_any_width(width: int) -> None:
    rows = np.random.default_rng(0).normal(size=(3, width)) * np.array([[1e-9], [1.0], [1e200]])
    norms = np.array([np.linalg.norm(rows[0]), np.linalg.norm(rows[1]), np.linalg.norm(rows[2] / 1e200) * 1e200])
    assert np.allclose(clip_rows(rows), rows / np.maximum(1.0, norms)[:, None], rtol=1e-12, atol=0.0)
    assert np.allclose(np.linalg.norm(unit_rows(rows), axis=1), 1.0)
    assert (np.square(quantize(unit_rows(rows))).sum(axis=1) <= GRID**2).all()
