"""The noise: calibrated against an independent accountant, drawn as it claims, never from a seed."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from fedaux.privacy import gaussian


def naive_delta(multiplier: float, epsilon: float) -> float:
    """δ(ε) = E_P[(1 − e^{ε − L})₊] by brute numerical integration over two unit-distance Gaussians."""
    x = np.linspace(-60 * multiplier, 60 * multiplier + 1, 2_000_001)
    p, q = stats.norm.pdf(x, 1.0, multiplier), stats.norm.pdf(x, 0.0, multiplier)
    return float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), x))


@pytest.mark.parametrize(("epsilon", "multiplier"), [(0.1, 10.0), (0.5, 3.0), (1.0, 2.0), (4.0, 0.8)])
def test_delta_is_the_hockey_stick_divergence(epsilon: float, multiplier: float) -> None:
    assert gaussian.delta_of(multiplier, epsilon) == pytest.approx(naive_delta(multiplier, epsilon), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_analytic_multiplier_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    ours = gaussian.analytic_multiplier(epsilon, delta)
    assert ours == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-4)
    assert gaussian.delta_of(ours, epsilon) <= delta


def test_the_known_value() -> None:
    assert gaussian.analytic_multiplier(0.1, 1e-5) == pytest.approx(30.75, abs=0.01)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_opendp_certifies_its_own_multiplier_at_any_scale(epsilon: float) -> None:
    z = gaussian.opendp_multiplier(epsilon, 1e-5)
    for sensitivity in (1.0, 2.0**21):
        assert gaussian.certified_epsilon(32, z * sensitivity, sensitivity, 1e-5) <= epsilon
        assert gaussian.certified_epsilon(32, 0.99 * z * sensitivity, sensitivity, 1e-5) > epsilon
    assert 1.0 < z / gaussian.analytic_multiplier(epsilon, 1e-5) < 1.15


def test_unknown_certificate_names_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="opendp, analytic"):
        gaussian.multiplier(1.0, 1e-5, "trust-me")


def test_noise_has_the_stated_law() -> None:
    scale = 5.0e6
    noise = gaussian.add_noise(np.full(4000, 7, dtype=np.int64), scale) - 7
    assert noise.dtype == np.int64
    assert stats.kstest(noise / scale, "norm").pvalue > 1e-4


def test_noise_does_not_follow_any_seed() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        draws.append(gaussian.add_noise(np.zeros(8, dtype=np.int64), 1e6))
    assert not np.array_equal(*draws)
