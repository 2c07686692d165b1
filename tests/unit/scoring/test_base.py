"""What all scorers share: clipping, weights, and the server's view of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedaux.core.messages import Release
from fedaux.privacy.clipping import clip_rows
from fedaux.scoring import teacher_weights as room
from fedaux.scoring.base import MIN_WEIGHT, Reference, teacher_weights
from fedaux.scoring.mean_embedding import MeanEmbeddingScorer
from fedaux.scoring.teacher_weights import Certainty


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


def test_weights_of_both_kinds() -> None:
    log_odds = np.array([-30.0, 0.0, 3.0])
    assert np.allclose(teacher_weights(log_odds, np.zeros(3), "certainty"), [MIN_WEIGHT, 0.5, 1 / (1 + np.exp(-3))])
    assert np.allclose(teacher_weights(log_odds, np.array([0.0, 0.0, 5.0]), "odds"), [MIN_WEIGHT, 1.0, np.exp(-2)])


@pytest.fixture
def certainty() -> Certainty:
    rng = np.random.default_rng(1)
    scorer = MeanEmbeddingScorer(embedding_dim=3)
    negatives, distill = rng.normal(size=(200, 5)), rng.normal(size=(70, 5))
    public = scorer.publish(negatives)
    return Certainty(
        scorer,
        "odds",
        {"p": public},
        {"p": Reference(scorer.embed(public, negatives))},
        {"p": scorer.embed(public, distill)},
        {"a": "p", "b": "p"},
    )


def made(client: str, seed: int) -> Release:
    values = np.random.default_rng(seed).integers(-(10**6), 10**6, 3)
    return Release(
        client, "mean-embedding", 50, 1.0, 1e-5, "replace-one", "opendp", 2e6, 1e5, 1e-7, False, "", {"values": values}
    )


def test_the_peak_is_the_largest_and_the_best_teacher_weighs_one(certainty: Certainty) -> None:
    weighing = certainty.among({"a": made("a", 1), "b": made("b", 2)}, ["a", "b"])
    each = np.stack([weighing.log_odds(client) for client in "ab"])
    weights = np.stack([weighing.weights(client) for client in "ab"])
    assert np.allclose(weights.max(axis=0), 1.0)
    assert np.allclose(weights / weights.sum(axis=0), np.exp(each) / np.exp(each).sum(axis=0), atol=1e-7)


def test_blocks_do_not_matter(certainty: Certainty, monkeypatch: pytest.MonkeyPatch) -> None:
    weighing = certainty.among({"a": made("a", 1)}, ["a"])
    whole = weighing.log_odds("a")
    monkeypatch.setattr(room, "_BLOCK", 7)
    assert np.allclose(weighing.log_odds("a"), whole)


def test_only_those_asked_are_teachers_but_all_known_releases_count(certainty: Certainty) -> None:
    weighing = certainty.among({"a": made("a", 1), "b": made("b", 2)}, ["a", "late"])
    assert weighing.teachers == {"a"}
    assert np.allclose(weighing.weights("a"), 1.0)  # nobody else is asked
