"""The repaired logistic scorer: objective, gradient, certified solution,
sensitivity.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedaux.client.summaries import logistic as regression
from fedaux.client.summaries import summarise
from fedaux.client.summaries.logistic import objective, solve
from fedaux.privacy.mechanism import clip_rows
from fedaux.scoring.logistic import (
    GRADIENT_TOLERANCE,
    LogisticScorer,
    sensitivity,
)

NONE = np.zeros(0, np.int64)  # this scorer has no use for labels


def problem(
    seed: int = 0, own: int = 30, negatives: int = 70, width: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return clip_rows(rng.normal(size=(own, width)) + 0.3), clip_rows(
        rng.normal(size=(negatives, width))
    )


def naive(w: np.ndarray, own: np.ndarray, negatives: np.ndarray, ridge: float) -> float:
    """Eq. 5 with l(z) = log(1 + e^{−z}), one record at a time."""
    total = 0.0
    for row in own:
        total += np.log(1 + np.exp(-(w @ row)))
    for row in negatives:
        total += np.log(1 + np.exp(+(w @ row)))
    return total / (len(own) + len(negatives)) + ridge / 2 * sum(
        value**2 for value in w
    )


def test_objective_is_equation_5() -> None:
    own, negatives = problem()
    w = np.array([0.3, -1.0, 2.0, 0.0, 0.7])
    assert objective(w, own, np.ones(len(own)), negatives, 0.1, 100)[
        0
    ] == pytest.approx(naive(w, own, negatives, 0.1), rel=1e-12)


def test_gradient_is_its_derivative() -> None:
    own, negatives = problem()
    w = np.array([0.3, -1.0, 2.0, 0.0, 0.7])
    for k in range(5):
        step = np.zeros(5)
        step[k] = 1e-6
        slope = (
            naive(w + step, own, negatives, 0.1) - naive(w - step, own, negatives, 0.1)
        ) / 2e-6
        assert objective(w, own, np.ones(len(own)), negatives, 0.1, 100)[1][
            k
        ] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("ridge", [1e-3, 0.01, 0.1])
def test_solution_is_certified(ridge: float) -> None:
    own, negatives = problem(1, 200, 400, 20)
    w = solve(own, np.ones(len(own)), negatives, ridge, 600)
    assert (
        np.linalg.norm(objective(w, own, np.ones(len(own)), negatives, ridge, 600)[1])
        <= GRADIENT_TOLERANCE / 600
    )


def test_an_unsolved_problem_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    own, negatives = problem()
    monkeypatch.setattr(regression, "GRADIENT_TOLERANCE", 1e-30)
    with pytest.raises(RuntimeError, match="Nothing is released"):
        solve(own, np.ones(len(own)), negatives, 0.1, 100)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([1.0, 30.0, 1000.0]),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
)
def test_no_record_moves_the_solution_further_than_stated(
    seed: int, size: float, adjacency: str
) -> None:
    rng = np.random.default_rng(seed)
    scorer = LogisticScorer(ridge=0.05)
    public = scorer.publish(rng.normal(size=(60, 4)))
    rest, record, other = (
        rng.normal(size=(12, 4)),
        size * rng.normal(size=4),
        size * rng.normal(size=4),
    )
    left = np.vstack([rest, other]) if adjacency == "replace-one" else rest
    one = summarise(
        scorer, public, np.vstack([rest, record]), NONE, adjacency, 13, np.ones(13)
    )
    two = summarise(scorer, public, left, NONE, adjacency, 13, np.ones(len(left)))
    assert np.linalg.norm((one.values - two.values).astype(float)) <= one.sensitivity


def test_the_bound_is_not_idle() -> None:
    """Two opposite records of full norm come within a factor of two of it: the test
    above has something to catch.
    """
    width, ridge = 4, 1.0
    negatives = np.zeros((1, width))
    e = np.eye(width)[0]
    moved = np.subtract(
        *(solve(np.array([row]), np.ones(1), negatives, ridge, 2) for row in (e, -e))
    )
    assert (
        sensitivity(2, ridge, "replace-one") / 3
        < np.linalg.norm(moved)
        <= sensitivity(2, ridge, "replace-one")
    )


@pytest.mark.parametrize("ridge", [0.0, -1.0, np.nan, np.inf])
def test_a_ridge_that_breaks_the_proof_is_refused(ridge: float) -> None:
    with pytest.raises(ValueError, match="at least 1e-6"):
        LogisticScorer(ridge)


def test_a_term_of_the_logistic_objective_counts_for_its_share() -> None:
    rng = np.random.default_rng(0)
    own, negatives, w = (
        rng.normal(size=(2, 3)),
        rng.normal(size=(4, 3)),
        rng.normal(size=3),
    )
    twice = objective(w, own[[0, 0, 1]], np.array([0.5, 0.5, 1.0]), negatives, 0.1, 6)
    once = objective(w, own, np.ones(2), negatives, 0.1, 6)
    assert twice[0] == pytest.approx(once[0])
    assert np.allclose(twice[1], once[1])
