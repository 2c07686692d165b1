"""Calibration of Gaussian noise to a budget (ε, δ), and the discrete Gaussian mechanism on integers, from OpenDP.

Everything released is a vector of integers, so neither the protected sum nor its noise is ever rounded, and the low
bits of floating-point numbers reveal nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from fedaux.core.errors import unknown_name

CALIBRATIONS = ("opendp", "analytic")
MAX_EPSILON = 1000.0  # no claim is made beyond it


def delta_of(multiplier: float, epsilon: float) -> float:
    """The exact δ(ε) of Gaussian noise with σ = multiplier · Δ (Balle & Wang 2018, theorem 8)."""
    a, b = 0.5 / multiplier, epsilon * multiplier
    return float(ndtr(a - b) - math.exp(epsilon + log_ndtr(-a - b)))


def epsilon_of(multiplier: float, delta: float) -> float:
    """The smallest ε with δ(ε) ≤ δ of that noise, from above and to nine digits."""
    if delta_of(multiplier, 0.0) <= delta:
        return 0.0
    return bracket(lambda epsilon: delta_of(multiplier, epsilon) <= delta, 0.0, 1e-10, 2 * MAX_EPSILON)[1]


def bracket(
    fits: Callable[[float], bool], low: float, tolerance: float, limit: float = math.inf
) -> tuple[float, float]:
    """(a value that does not fit, one that fits) around the smallest that does, within a relative tolerance.

    `low` is below it. The search doubles from 1; the second is ∞ if no value up to the limit fits.
    """
    high = 1.0
    while not fits(high):
        low, high = high, 2 * high
        if high > limit:
            return low, math.inf
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return low, high


def discretisation(size: int, scale: float, tail: float = 64.0) -> float:
    """c: the cost of the discrete Gaussian over the continuous one, on `size` coordinates at this scale in steps.

    Whatever is (ε, δ)-private with continuous noise, N(0, scale²) on every coordinate, is (ε + c, e^c δ + e^(ε + c −
    tail²/2))-private with discrete noise; the costs of several mechanisms add up, however they are sampled and chosen.
    The proof is in docs/privacy.md, "The noise". It needs a scale of ten steps; below that nothing is promised.
    """
    reach = (math.sqrt(size) + tail) / scale
    return reach * reach / 11.0 if scale >= 10.0 else math.inf


def continuous_delta(delta: float, cost: float) -> float:
    """The δ that continuous noise may have, so that discrete noise has the one given at an ε higher by `cost`.

    A billionth of it is for the e^(ε + c − 2048) of up to 10¹² mechanisms: enough at any ε + c ≤ `MAX_EPSILON` and
    δ ≥ 1e-300.
    """
    return delta * math.exp(-cost) * (1 - 1e-9)


@lru_cache(maxsize=256)
def analytic_multiplier(epsilon: float, delta: float, size: int, sensitivity: float) -> float:
    """The smallest σ/Δ for which discrete Gaussian noise is proven (ε, δ)-private; sensitivity Δ in steps.

    `discretisation` is taken at the scale of the continuous Gaussian, which is smaller than the one returned.
    """
    epsilon = min(epsilon, MAX_EPSILON)
    scale = continuous_multiplier(epsilon, delta) * sensitivity
    cost = discretisation(size, scale)
    if not cost < epsilon / 2:
        raise ValueError(
            f"noise of scale {scale:.3g} steps is too coarse for the analytic calibration of {size} numbers: make the "
            "summary's steps finer, or set privacy.calibration = 'opendp'"
        )
    return continuous_multiplier(epsilon - cost, continuous_delta(delta, cost))


@lru_cache(maxsize=256)
def continuous_multiplier(epsilon: float, delta: float) -> float:
    """The smallest σ/Δ for which Gaussian noise is (ε, δ)-private, for any ε > 0; the classic formula needs ε < 1."""
    smallest = bracket(lambda z: delta_of(z, epsilon) <= delta, 1e-3, 1e-13)[1]
    return smallest * (1 + 1e-6)  # covers the error of cancellation


@lru_cache(maxsize=256)
def opendp_multiplier(epsilon: float, delta: float) -> float:
    """The smallest σ/Δ for which OpenDP certifies (ε, δ) for the very sampler used here."""
    from opendp.mod import binary_search_param

    smallest = binary_search_param(lambda z: _certified(1, z, delta), d_in=1.0, d_out=(epsilon, delta))
    return float(smallest) * (1 + 1e-10)


def multiplier(epsilon: float, delta: float, calibration: str, size: int, sensitivity: float) -> float:
    """σ/Δ for `size` integers of that ℓ₂ sensitivity in steps, with the proof that the calibration names."""
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError(f"a budget needs ε > 0 and 0 < δ < 1, not ({epsilon}, {delta})")
    if calibration not in CALIBRATIONS:
        raise unknown_name("calibration", calibration, CALIBRATIONS)
    if calibration == "opendp":
        return opendp_multiplier(epsilon, delta)
    return analytic_multiplier(epsilon, delta, size, sensitivity)


def add_noise(values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    """`values` plus exact discrete Gaussian noise of the given scale, drawn from the operating system's randomness."""
    noisy = _mechanism(len(values), scale)(values.tolist())
    return np.asarray(noisy, dtype=np.int64)


def _mechanism(size: int, scale: float) -> Any:
    from opendp.domains import atom_domain, vector_domain  # `opendp.prelude` would import scikit-learn and scipy.stats
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64"), size=size), l2_distance(T=float), scale=scale)


def _certified(size: int, scale: float, delta: float) -> Any:
    from opendp.combinators import make_fix_delta, make_zCDP_to_approxDP

    return make_fix_delta(make_zCDP_to_approxDP(_mechanism(size, scale)), delta)
