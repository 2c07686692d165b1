"""The noise: calibrated against an independent accountant, drawn as it claims, never from a seed."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from fedaux.privacy import gaussian
from fedaux.privacy.clipping import GRID


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
def test_the_analytic_multiplier_agrees_with_dp_accounting_and_is_never_below(epsilon: float, delta: float) -> None:
    for size, reach in ((1, 2.0**21), (330, 2.0 * GRID), (100_000, 2.0 * GRID)):
        ours = gaussian.analytic_multiplier(epsilon, delta, size, reach)
        assert ours == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-4)
        cost = gaussian.discretisation(size, ours * reach)
        assert gaussian.delta_of(ours, epsilon - cost) * math.exp(cost) < delta
        assert gaussian.epsilon_of(ours, gaussian.continuous_delta(delta, cost)) + cost <= epsilon


def test_the_known_value() -> None:
    assert gaussian.continuous_multiplier(0.1, 1e-5) == pytest.approx(30.75, abs=0.01)
    found = [gaussian.multiplier(0.1, 1e-5, name, 330, 2.0 * GRID) for name in ("opendp", "analytic")]
    assert found[0] / found[1] == pytest.approx(1.105, abs=0.005)


def test_coarse_steps_ask_for_more_noise_until_they_are_refused() -> None:
    noise = [gaussian.analytic_multiplier(0.1, 1e-5, 10, reach) for reach in (2.0**31, 64.0, 16.0)]
    assert noise == sorted(noise)
    assert noise[0] == gaussian.continuous_multiplier(0.1, 1e-5 * (1 - 1e-9)) < 0.99 * noise[-1]
    with pytest.raises(ValueError, match=r"too coarse for the analytic calibration of 10 numbers.*'opendp'"):
        gaussian.analytic_multiplier(0.1, 1e-5, 10, 2.0)


def test_ten_thousand_steps_of_a_network_cost_nothing_on_this_grid() -> None:
    """10⁵ parameters at σ = .5."""
    assert 10_000 * gaussian.discretisation(100_000, 0.5 * GRID) < 1e-9


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_opendp_certifies_its_own_multiplier_at_any_scale(epsilon: float) -> None:
    z = gaussian.opendp_multiplier(epsilon, 1e-5)
    for sensitivity in (1.0, 2.0**21, 2.0 * GRID):
        assert gaussian.certified_epsilon(32, z * sensitivity, sensitivity, 1e-5) <= epsilon
        assert gaussian.certified_epsilon(32, 0.99 * z * sensitivity, sensitivity, 1e-5) > epsilon
    assert 1.0 < z / gaussian.continuous_multiplier(epsilon, 1e-5) < 1.15


def test_unknown_certificate_names_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="opendp, analytic"):
        gaussian.multiplier(1.0, 1e-5, "trust-me", 1, 2.0 * GRID)


@pytest.mark.parametrize("scale", [5.0e6, 30.75 * 2 * GRID])
def test_noise_has_the_stated_law(scale: float) -> None:
    noise = gaussian.add_noise(np.full(4000, 7, dtype=np.int64), scale) - 7
    assert noise.dtype == np.int64
    assert stats.kstest(noise / scale, "norm").pvalue > 1e-4


def test_noise_does_not_follow_any_seed() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        draws.append(gaussian.add_noise(np.zeros(8, dtype=np.int64), 1e6))
    assert not np.array_equal(*draws)
