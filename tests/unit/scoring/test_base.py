"""What all scorers share: teacher weights, moments of public rows, and arrays of the right shape."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.scoring.base import MIN_WEIGHT, Reference, bound_function, check_shapes, teacher_weights
from fedaux.scoring.logistic import LogisticScorer
from fedaux.scoring.mean_embedding import MeanEmbeddingScorer


def test_weights_of_both_kinds() -> None:
    log_odds = np.array([-30.0, 0.0, 3.0])
    assert np.allclose(teacher_weights(log_odds, np.zeros(3), "certainty"), [MIN_WEIGHT, 0.5, 1 / (1 + np.exp(-3))])
    assert np.allclose(teacher_weights(log_odds, np.array([0.0, 0.0, 5.0]), "odds"), [MIN_WEIGHT, 1.0, np.exp(-2)])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6), st.sampled_from(["odds", "certainty"]))
def test_weights_lie_above_the_floor_at_most_one_and_keep_the_order(log_odds: list[float], kind: str) -> None:
    odds = np.sort(np.array(log_odds))
    weights = teacher_weights(odds, np.full(len(odds), odds.max()), kind)
    assert (weights >= MIN_WEIGHT).all()
    assert (weights <= 1).all()
    assert (np.diff(weights) >= 0).all()


@pytest.mark.parametrize("width", [1, 4])
def test_moments_of_a_reference_are_those_of_its_rows(width: int) -> None:
    rows = np.random.default_rng(0).normal(size=(30, width))
    reference = Reference(rows)
    centred = rows - sum(rows) / 30
    assert np.allclose(reference.mean, sum(rows) / 30)
    assert np.allclose(reference.covariance, sum(np.outer(row, row) for row in centred) / 29)
    assert reference.covariance.shape == (width, width)


def test_a_public_array_of_another_shape_is_refused() -> None:
    check_shapes({"mean": np.zeros(3)}, mean=(3,))
    with pytest.raises(ValueError, match=r"'mean' has shape \(1, 3\), not \(3,\)"):
        check_shapes({"mean": np.zeros((1, 3))}, mean=(3,))


def test_a_scorer_without_a_bound_is_not_held_to_one() -> None:
    class Own:
        name = "own"

    assert bound_function(MeanEmbeddingScorer(3)) is not None
    assert bound_function(LogisticScorer(0.1)) is not None
    assert bound_function(Own()) is None  # type: ignore[arg-type]
