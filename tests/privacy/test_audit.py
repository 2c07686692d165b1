"""The audit has power: it comes close to the true ε, stays below it, and reports what is broken."""

import numpy as np
import pytest

from fedaux.config import PrivacyConfig
from fedaux.privacy.audit import Audit, audit, lower_bounds
from fedaux.privacy.gaussian import add_noise, continuous_multiplier, multiplier
from fedaux.privacy.release import Summary, release


def bulk(privacy: PrivacyConfig, draws: int, factor: float = 1.0):  # type: ignore[no-untyped-def]
    """Releases as `release` makes them, with the same sampler and scale, but many at a time: that is faster."""
    scale = factor * multiplier(privacy.epsilon, privacy.delta, privacy.certificate, 2, 2.0**21)
    waiting: dict[int, list[np.ndarray]] = {}

    def draw(summary: Summary) -> np.ndarray:
        rows = waiting.setdefault(int(summary.values[0]), [])
        if not rows:
            noisy = add_noise(np.tile(summary.values, draws), scale * summary.sensitivity)
            rows.extend(noisy.reshape(draws, -1))
        return rows.pop()

    return draw


def check(found: Audit) -> None:
    assert not found.violated
    assert found.any_mechanism <= found.claimed
    assert 0.6 * found.claimed <= found.gaussian <= found.claimed


@pytest.mark.parametrize(
    ("epsilon", "certificate"),
    [(1.0, "opendp"), (4.0, "opendp"), pytest.param(4.0, "analytic", marks=pytest.mark.slow)],
)
def test_what_is_claimed_is_nearly_reached_and_never_passed(epsilon: float, certificate: str) -> None:
    privacy = PrivacyConfig(epsilon=epsilon, certificate=certificate)
    check(audit(privacy, 200_000, draw=bulk(privacy, 10_000)))


@pytest.mark.parametrize("epsilon", [1.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_noise_of_half_its_scale_is_reported(epsilon: float) -> None:
    privacy = PrivacyConfig(epsilon=epsilon)
    assert audit(privacy, 200_000, draw=bulk(privacy, 10_000, factor=0.5)).violated


def test_a_seeded_generator_is_reported() -> None:
    """The very path of `privacy.unsafe_seed`: the noise is the same every time, so there might as well be none."""
    found = audit(PrivacyConfig(epsilon=1.0, unsafe_seed=3), 2_000)
    assert found.violated
    assert found.any_mechanism > 4


def test_the_real_path_of_a_client() -> None:
    """Release by release, none drawn in bulk."""
    found = audit(PrivacyConfig(epsilon=4.0), 10_000)
    assert not found.violated
    assert found.gaussian > 0.6 * 4.0


def test_noise_that_misses_a_coordinate_is_reported() -> None:
    privacy = PrivacyConfig(epsilon=1.0)
    scale = multiplier(1.0, 1e-5, "opendp", 1, 2.0**21)

    def half(summary: Summary) -> np.ndarray:
        noisy = summary.values.copy()
        noisy[:1] = add_noise(noisy[:1], scale * summary.sensitivity)
        return noisy

    def difference(summary: Summary) -> np.ndarray:  # the attacker reads the bare coordinate
        return half(summary)[1:]

    assert audit(privacy, 500, draw=difference).violated


def test_equal_distributions_give_nothing() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        any_mechanism, gaussian = lower_bounds(rng.normal(size=5000), rng.normal(size=5000), 1e-5)
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


def test_a_client_without_any_noise_is_told_apart_at_once() -> None:
    assert audit(PrivacyConfig(epsilon=1.0), 200, draw=lambda summary: summary.values).violated
    assert release(Summary(np.zeros(2, np.int64), 1.0, 2.0**21, "replace-one", 1), "a", PrivacyConfig()).unsafe is False
