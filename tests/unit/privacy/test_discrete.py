"""The discrete Gaussian against the continuous one, summed over the whole lattice: what docs/privacy.md proves."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from fedaux.privacy import gaussian

Vector = NDArray[np.float64]
TAIL = 7.0  # e^(−24.5): far below every δ that is compared
EPSILONS = [-2.0, -0.5, -0.05, 0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0]


def lattice(scale: float, shift: int) -> tuple[Vector, Vector]:
    """The noise on a coordinate, and the same moved by `shift`, over all integers that matter."""
    far = math.ceil(8 * scale) + abs(shift)
    z = np.arange(-far, far + 1)
    total = np.exp(-0.5 * np.square(np.arange(-4 * far, 4 * far + 1) / scale)).sum()
    here, there = (np.exp(-0.5 * np.square(one / scale)) / total for one in (z, z - shift))
    return here, there


def discrete_delta(scale: float, shift: tuple[int, ...], epsilon: float) -> float:
    """Σ_z (p(z) − e^ε p(z − Δ))₊ with nothing left out but e^(−32)."""
    here = there = np.ones(())
    for one in shift:
        p, q = lattice(scale, one)
        here, there = np.multiply.outer(here, p), np.multiply.outer(there, q)
    return float(np.maximum(here - math.exp(epsilon) * there, 0.0).sum())


@pytest.mark.parametrize("scale", [10.0, 11.3, 40.0])
def test_the_discrete_gaussian_is_nearly_the_rounded_one(scale: float) -> None:
    """Both inequalities between the two, which all else rests on; neither constant could be much smaller."""
    z = np.arange(-math.ceil(20 * scale), math.ceil(20 * scale) + 1)
    discrete = np.exp(-0.5 * np.square(z / scale))
    discrete /= discrete.sum()
    near = np.abs(z) + 0.5, np.abs(z) - 0.5
    rounded = ndtr(-near[1] / scale) - ndtr(-near[0] / scale)
    low, high = 1 / (24 * scale**2), np.square(z) / (24 * scale**4)
    ratio = np.log(discrete / rounded)
    assert (ratio <= low + 1e-12).all()
    assert ratio.max() > 0.99 * low
    assert (-ratio <= high + 1e-12).all()
    assert (-ratio).max() > 0.9 * high.max()


SHIFTS = [
    *[(one,) for one in (1, 2, 7, 10, 25, -40)],
    *[(1, 0), (3, -4), (8, 8), (0, 30)],
    *[(1, 1, 1), (2, -3, 6), (0, 10, 0), (9, 9, -9)],
]


@pytest.mark.parametrize("shift", SHIFTS, ids=str)
def test_discrete_noise_costs_no_more_than_is_proven(shift: tuple[int, ...]) -> None:
    distance = math.sqrt(sum(one * one for one in shift))
    for scale in (10.0,) if len(shift) == 3 else (10.0, 17.3, 40.0):
        cost = gaussian.discretisation(len(shift), scale, TAIL)
        assert cost < 0.1
        for epsilon in EPSILONS:
            continuous = gaussian.delta_of(scale / distance, epsilon)
            proven = math.exp(cost) * (continuous + math.exp(epsilon - TAIL**2 / 2))
            assert discrete_delta(scale, shift, epsilon + cost) <= proven + 1e-14


def test_without_its_cost_the_bound_would_be_wrong() -> None:
    """The discrete profile does pass above the continuous one, so the tests above have something to catch."""
    worst = 0.0
    for shift, epsilon in itertools.product([(one,) for one in range(1, 40)], EPSILONS):
        excess = discrete_delta(10.0, shift, epsilon) - gaussian.delta_of(10.0 / shift[0], epsilon)
        worst = max(worst, excess)
    assert worst > 1e-4


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("shift", [1, 4, 10, 30])
def test_a_sampled_sum_costs_no_more_either(rate: float, shift: int) -> None:
    """Replace-one: a record that is drawn with that rate moves the sum by `shift`, and its neighbour by −`shift`."""
    scale, x = 10.0, np.linspace(-200.0, 200.0, 400_001)
    cost = gaussian.discretisation(1, scale, TAIL)
    dense = [stats.norm.pdf(x, mean, scale) for mean in (0, shift, -shift)]
    z = np.arange(-200, 201)
    sparse = [np.exp(-0.5 * np.square((z - mean) / scale)) for mean in (0, shift, -shift)]
    total = sparse[0].sum()

    def excess(laws: list[Vector], epsilon: float) -> Vector:
        rest, one, other = laws
        return np.maximum((1 - rate) * rest + rate * one - math.exp(epsilon) * ((1 - rate) * rest + rate * other), 0.0)

    for epsilon in EPSILONS:
        continuous = float(np.trapezoid(excess(dense, epsilon), x))
        discrete = float(excess(sparse, epsilon + cost).sum() / total)
        assert discrete <= math.exp(cost) * (continuous + math.exp(epsilon - TAIL**2 / 2)) + 1e-9
