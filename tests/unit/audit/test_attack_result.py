"""A claim is refuted by a larger bound alone, and neighbours that differ are told apart."""

import math

import numpy as np
import pytest

from fedaux.audit.attack_result import AttackResult, AuditConfig, distinguish


@pytest.mark.parametrize(("bound", "violated"), [(0.0, False), (4.0, False), (4.01, True), (math.inf, True)])
def test_a_claim_is_refuted_by_a_larger_bound_alone(bound: float, violated: bool) -> None:
    assert AttackResult(4.0, bound).violated is violated


def test_what_is_read_without_noise_has_no_epsilon() -> None:
    leak, tight = (AttackResult.exact(leaks, "detail") for leaks in (True, False))
    assert (leak.violated, leak.bound) == (True, math.inf)
    assert (tight.violated, tight.bound) == (False, 0.0)


def test_draws_are_fewer_where_a_record_moves_far_and_more_where_noise_is_missing() -> None:
    audit = AuditConfig(draws=1000)
    assert audit.fewer_draws().draws < 1000 < audit.more_draws().draws
    assert AuditConfig(draws=60).fewer_draws().draws == 60  # below that nothing is proven
    assert audit.fewer_draws().epsilon == audit.epsilon


def neighbours(distance: float, size: int = 3):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    return [lambda shift=shift: rng.normal(size=size) + shift for shift in (0.0, distance)]


def test_neighbours_that_agree_are_not_told_apart_and_distant_ones_are() -> None:
    audit = AuditConfig(epsilon=1.0, draws=400)
    assert not distinguish(neighbours(0.0), audit).violated
    far = distinguish(neighbours(5.0), audit, "five deviations")
    assert far.violated
    assert (far.claimed, far.draws, far.detail) == (1.0, 400, "five deviations")


def test_who_knows_the_direction_need_not_learn_it() -> None:
    """One coordinate of two hundred moves: learned from few draws, the direction is mostly noise."""
    rng, direction = np.random.default_rng(1), np.eye(200)[0]
    draws = [lambda shift=shift: rng.normal(size=200) + shift * direction for shift in (0.0, 3.0)]
    audit = AuditConfig(draws=200)
    known, learned = (distinguish(draws, audit, direction=way) for way in (direction, None))
    assert known.bound > learned.bound + 0.5
