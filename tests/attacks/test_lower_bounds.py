"""A claim is refuted by a larger bound alone; bounds come close to the true ε, and stay
below it as they say.
"""

import math

import numpy as np
import pytest

from attacks.package.bounds import (
    AuditConfig,
    DrawnResult,
    distinguish,
    linear_scores,
    lower_bounds,
    one_run_bound,
    one_run_p_value,
)
from fedaux.audit.result import AttackResult
from fedaux.privacy.mechanism import continuous_multiplier


@pytest.mark.parametrize(
    ("bound", "violated"), [(0.0, False), (4.0, False), (4.01, True), (math.inf, True)]
)
def test_a_claim_is_refuted_by_a_larger_bound_alone(
    bound: float, violated: bool
) -> None:
    assert AttackResult(4.0, bound).violated is violated


def test_what_is_read_without_noise_has_no_epsilon() -> None:
    leak, tight = (AttackResult.exact(leaks, "detail") for leaks in (True, False))
    assert (leak.violated, leak.bound) == (True, math.inf)
    assert (tight.violated, tight.bound) == (False, 0.0)


def test_draws_are_fewer_where_a_record_moves_far_and_more_where_noise_is_missing() -> (
    None
):
    audit = AuditConfig(draws=1000)
    assert audit.fewer_draws().draws < 1000 < audit.more_draws().draws
    # below that nothing is proven
    assert AuditConfig(draws=60).fewer_draws().draws == 60
    assert audit.fewer_draws().epsilon == audit.epsilon


def neighbours(distance: float, size: int = 3):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    return [
        lambda shift=shift: rng.normal(size=size) + shift for shift in (0.0, distance)
    ]


def test_neighbours_that_agree_are_not_told_apart_and_distant_ones_are() -> None:
    audit = AuditConfig(epsilon=1.0, draws=400)
    assert not distinguish(neighbours(0.0), audit).violated
    far = distinguish(neighbours(5.0), audit, "five deviations")
    assert far.violated
    assert isinstance(far, DrawnResult)
    assert (far.claimed, far.draws, far.detail) == (1.0, 400, "five deviations")


def test_who_knows_the_direction_need_not_learn_it() -> None:
    """One coordinate of two hundred moves: learned from few draws, the direction is
    mostly noise.
    """
    rng, direction = np.random.default_rng(1), np.eye(200)[0]
    draws = [
        lambda shift=shift: rng.normal(size=200) + shift * direction
        for shift in (0.0, 3.0)
    ]
    audit = AuditConfig(draws=200)
    known, learned = (
        distinguish(draws, audit, direction=way) for way in (direction, None)
    )
    assert known.bound > learned.bound + 0.5


def test_equal_distributions_give_nothing() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        any_mechanism, gaussian = lower_bounds(
            rng.normal(size=5000), rng.normal(size=5000), 1e-5
        )
        assert any_mechanism < 0.2
        assert gaussian < 0.2


def test_bounds_hold_in_nineteen_of_twenty_audits() -> None:
    """Scores with a known ε: Gaussian ones, calibrated analytically."""
    rng, wrong = np.random.default_rng(1), 0
    z = continuous_multiplier(1.0, 1e-5)
    for _ in range(200):
        found = lower_bounds(rng.normal(size=2000), rng.normal(size=2000) + 1 / z, 1e-5)
        wrong += max(found) > 1.0
    assert wrong <= 20  # both bounds may be wrong in one of twenty


def test_learning_the_direction_costs_no_confidence() -> None:
    """In a hundred dimensions, where the draws that it is learned from fit it by
    chance.
    """
    rng = np.random.default_rng(2)
    found = [
        max(lower_bounds(*linear_scores(*rng.normal(size=(2, 100, 100))), 1e-5))
        for _ in range(100)
    ]
    assert sum(one > 0.5 for one in found) <= 10


def test_a_coordinate_without_noise_outweighs_all_others() -> None:
    rng = np.random.default_rng(3)
    low, high = rng.normal(size=(2, 60, 50))
    low[:, 7], high[:, 7] = 0.0, 1e-3
    zeros, ones = linear_scores(low, high)
    assert zeros.max() < ones.min()


def test_the_p_value_of_one_run_is_that_of_the_paper() -> None:
    """The paper's own program, line by line."""
    from scipy.stats import binom

    def published(m: int, r: int, v: int, eps: float, delta: float) -> float:
        q = 1 / (1 + np.exp(-eps))
        alpha = total = 0.0
        for i in range(1, v + 1):
            total += binom.pmf(v - i, r, q)
            alpha = max(alpha, total / i)
        return min(1.0, binom.sf(v - 1, r, q) + alpha * delta * 2 * m)

    for m, r, v, eps, delta in [
        (1000, 100, 90, 1.0, 1e-5),
        (50, 50, 50, 3.0, 0.0),
        (400, 200, 120, 0.1, 1e-3),
    ]:
        assert one_run_p_value(m, r, v, eps, delta) == pytest.approx(
            published(m, r, v, eps, delta), rel=1e-9
        )


def guesses(member: np.ndarray, scores: np.ndarray, share: int) -> tuple[int, int, int]:
    """(canaries, guesses, right): the top and the bottom are guessed."""
    order, count = np.argsort(scores), len(scores) // share
    return (
        len(scores),
        2 * count,
        int(member[order[-count:]].sum() + (~member[order[:count]]).sum()),
    )


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_one_run_of_randomised_response_is_bounded_closely_and_validly(
    epsilon: float,
) -> None:
    """The mechanism for which the bound is tight: every guess is right with odds
    e^ε.
    """
    rng, found = np.random.default_rng(4), []
    for _ in range(200):
        member = rng.random(2000) < 0.5
        told = member ^ (rng.random(2000) > 1 / (1 + np.exp(-epsilon)))
        found.append(one_run_bound(2000, 2000, int((told == member).sum()), 0.0))
    assert sum(one > epsilon for one in found) <= 20  # 10 are expected
    assert np.median(found) > 0.75 * epsilon


def test_one_run_of_gaussian_noise_stays_below_its_epsilon_and_sees_less_noise() -> (
    None
):
    rng, z = np.random.default_rng(5), continuous_multiplier(1.0, 1e-5)

    def bounds(noise: float) -> list[float]:
        found = []
        for _ in range(100):
            member = rng.random(2000) < 0.5
            scores = member + rng.normal(0, noise, 2000)
            found.append(one_run_bound(*guesses(member, scores, 20), 1e-5))
        return found

    assert sum(one > 1.0 for one in bounds(z)) <= 5
    assert np.median(bounds(z / 5)) > 1.0


def test_no_guess_is_better_than_a_coin_without_a_mechanism() -> None:
    assert one_run_bound(1000, 500, 250, 1e-5) == 0.0
    assert one_run_bound(1000, 0, 0, 1e-5) == 0.0
    with pytest.raises(ValueError, match="is impossible"):
        one_run_bound(10, 20, 5, 1e-5)
