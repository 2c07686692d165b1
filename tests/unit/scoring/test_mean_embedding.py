"""Mean embedding and KLIEP against naive versions, and the bound the privacy proof needs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedaux.core.messages import Release
from fedaux.data.records import Records
from fedaux.privacy.clipping import GRID, clip_rows, unit_rows
from fedaux.privacy.units import Units
from fedaux.scoring.base import Reference
from fedaux.scoring.mean_embedding import MeanEmbeddingScorer, mean_embedding

NONE = np.zeros(0, np.int64)  # this scorer has no use for labels


def cloud(rng: np.random.Generator, size: int, width: int, shift: float = 0.0) -> np.ndarray:
    return rng.normal(size=(size, width)) * np.linspace(3.0, 0.2, width) + shift


def test_mean_embedding_is_the_mean() -> None:
    rows = clip_rows(np.random.default_rng(1).normal(size=(37, 5)))
    found = mean_embedding(rows, "replace-one", 37, np.ones(37))
    naive = [sum(row[k] for row in rows) / len(rows) for k in range(5)]
    assert np.allclose(found.values * found.step, naive, atol=2e-6)
    assert (found.sensitivity, found.records) == (2 * GRID, 37)
    assert mean_embedding(rows, "add-remove", 37, np.ones(37)).sensitivity == GRID


wild = st.one_of(
    st.floats(width=32, allow_nan=True, allow_infinity=True),
    st.sampled_from([1e38, -1e38, 0.0, np.inf, -np.inf, np.nan]),
)


@settings(max_examples=300, deadline=None)
@given(
    record=st.lists(wild, min_size=4, max_size=4),
    other=st.lists(wild, min_size=4, max_size=4),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
)
def test_no_record_moves_the_sum_further_than_stated(record: list[float], other: list[float], adjacency: str) -> None:
    rng = np.random.default_rng(2)
    scorer = MeanEmbeddingScorer(embedding_dim=3)
    public = scorer.publish(cloud(rng, 200, 4))
    rest = cloud(rng, 9, 4)
    with np.errstate(all="ignore"):
        one = scorer.summarise(public, np.vstack([rest, record]), NONE, adjacency, 10, np.ones(len(rest) + 1))
        left = np.vstack([rest, other]) if adjacency == "replace-one" else rest
        two = scorer.summarise(public, left, NONE, adjacency, 10, np.ones(len(left)))
    assert np.linalg.norm((one.values - two.values).astype(float)) <= one.sensitivity


@pytest.mark.parametrize("ratio", ["bayes", "kliep"])
def test_log_odds_prefer_what_looks_like_the_client(ratio: str) -> None:
    rng = np.random.default_rng(6)
    negatives, own = cloud(rng, 1000, 6), cloud(rng, 400, 6, 1.0)
    scorer = MeanEmbeddingScorer(embedding_dim=6, ratio=ratio)
    public = scorer.publish(negatives)
    found = scorer.summarise(public, own, NONE, "replace-one", 400, np.ones(len(own)))
    quiet = Release(
        "a",
        scorer.name,
        400,
        1.0,
        1e-5,
        "replace-one",
        "opendp",
        found.sensitivity,
        1.0,
        found.step,
        False,
        "",
        {"values": found.values},
    )
    log_odds = scorer.fit(public, Reference(scorer.embed(public, negatives)), [quiet]).log_odds["a"]
    near, far = (float(np.mean(log_odds(scorer.embed(public, cloud(rng, 500, 6, at))))) for at in (1.0, -1.0))
    assert near > far + 1.0


def test_the_mean_is_over_persons_not_over_records() -> None:
    rows = unit_rows(np.random.default_rng(0).normal(size=(7, 3)))
    units = Units.of(Records(rows, person=np.array([4, 4, 2, 4, 9, 2, 4])), "person", 3)
    summary = mean_embedding(rows, "replace-one", 3, units.shares)
    naive = np.mean([rows[own].mean(axis=0) for own in units.rows], axis=0)
    assert np.allclose(summary.values * summary.step, naive, atol=1e-5)
