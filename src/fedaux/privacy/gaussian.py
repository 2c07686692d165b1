"""How much Gaussian noise a budget (ε, δ) needs, and the noise itself: a discrete Gaussian on integers, from OpenDP.

Everything released is a vector of integers, so neither the sum that is protected nor the noise that protects it is ever
rounded, and nothing can be read off the low bits of floating-point numbers.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from fedaux.errors import unknown

CERTIFICATES = ("opendp", "analytic")


def delta_of(multiplier: float, epsilon: float) -> float:
    """The exact δ(ε) of Gaussian noise with σ = multiplier · Δ (Balle & Wang 2018, theorem 8)."""
    a, b = 0.5 / multiplier, epsilon * multiplier
    return float(ndtr(a - b) - math.exp(epsilon + log_ndtr(-a - b)))


@lru_cache(maxsize=256)
def analytic_multiplier(epsilon: float, delta: float) -> float:
    """The smallest σ/Δ for which Gaussian noise is (ε, δ)-private, for any ε > 0; the classic formula needs ε < 1."""
    from scipy.optimize import brentq

    low, high = 1e-3, 1.0
    while delta_of(high, epsilon) > delta:
        high *= 2.0
    root = brentq(lambda z: delta_of(z, epsilon) - delta, low, high, xtol=1e-14, rtol=1e-13)
    return float(root) * (1 + 1e-6)  # more noise than the errors of root finder and cancellation can take away


@lru_cache(maxsize=256)
def opendp_multiplier(epsilon: float, delta: float) -> float:
    """The smallest σ/Δ for which OpenDP certifies (ε, δ) for the very sampler used here."""
    dp = _opendp()
    found = dp.binary_search_param(lambda z: _certified(1, z, delta), d_in=1.0, d_out=(epsilon, delta))
    return float(found) * (1 + 1e-10)


def multiplier(epsilon: float, delta: float, certificate: str) -> float:
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError(f"a budget needs ε > 0 and 0 < δ < 1, not ({epsilon}, {delta})")
    if certificate not in CERTIFICATES:
        raise unknown("certificate", certificate, CERTIFICATES)
    return (opendp_multiplier if certificate == "opendp" else analytic_multiplier)(epsilon, delta)


def add_noise(values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    """`values` plus exact discrete Gaussian noise of the given scale, drawn from the operating system's randomness."""
    noisy = _mechanism(len(values), scale)(values.tolist())
    return np.asarray(noisy, dtype=np.int64)


def certified_epsilon(size: int, scale: float, sensitivity: float, delta: float) -> float:
    """What OpenDP itself certifies for `add_noise` at this ℓ₂ sensitivity."""
    epsilon, _ = _certified(size, scale, delta).map(sensitivity)
    return float(epsilon)


def _mechanism(size: int, scale: float) -> Any:
    dp = _opendp()
    return dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T="i64"), size=size), dp.l2_distance(T=float), scale=scale
    )


def _certified(size: int, scale: float, delta: float) -> Any:
    dp = _opendp()
    return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(_mechanism(size, scale)), delta)


@lru_cache(maxsize=1)
def _opendp() -> Any:
    import opendp.prelude as dp  # its import is slow and only releases need it

    dp.enable_features("contrib")
    return dp
