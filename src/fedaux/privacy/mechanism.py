"""P3: the mechanism. Clipping to norm 1, exact integers, and calibrated discrete
Gaussian noise on a summary.

A row's integers are, bit for bit, a function of that row: every operation of clipping
and quantisation is elementwise and rounded as IEEE 754 says (+, ×, ÷, √, rint), a
maximum, which is exact in any order, or `_row_sums`, whose order depends on the width
alone. Everything released is a vector of integers, so neither the protected sum nor its
noise is ever rounded, and the low bits of floating-point numbers reveal nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from fedaux.config.sections import PrivacyConfig
from fedaux.core.arrays import Arrays
from fedaux.core.errors import unknown_name
from fedaux.messages import Release

# ℓ₂, of a sum of vectors of norm at most 1, one per record
UNIT_SENSITIVITY = {"replace-one": 2, "add-remove": 1}
# steps per unit: a quantised vector means `values / GRID`; squares fit 63 bits
GRID = 2**30


@dataclass(frozen=True)
class Bound:
    """Bounds that hold for every honest summary of a data set of given size, whatever
    its records, in steps.
    """

    norm: float  # ℓ₂, before the noise
    step: float
    sensitivity: float


# (the scorer's public arrays, adjacency, public |D_i|)
Bounds = Callable[[Arrays, str, int], Bound]


def clip_rows(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Clip each row separately to norm 1. Rows that are not finite become zero."""
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(
            f"one row per record was expected, not an array of shape {rows.shape}"
        )
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), 1.0)
    # squares of huge entries would overflow; a row within the ball is divided by 1 and
    # stays
    scaled = rows / largest
    norms = np.sqrt(_row_sums(np.square(scaled)))
    return np.asarray(scaled / np.maximum(norms, 1.0 / largest))


def unit_rows(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Normalise each row separately to norm 1. Rows that are zero or not finite become
    zero.

    The noise is calibrated to the longest possible row, so every row should be as long
    as that.

    Args:
        rows: One row per record, (N, k).

    Returns:
        The normalised rows, (N, k).
    """
    rows = np.asarray(rows, dtype=np.float64)
    largest = (
        np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
        if rows.ndim == 2
        else np.ones(1)
    )
    usable = np.isfinite(largest) & (largest > 0)
    # squares of huge entries would overflow
    scaled = np.where(usable, rows / np.where(usable, largest, 1.0), 0.0)
    return clip_rows(scaled)  # the largest entry is 1, so no row has norm below 1


def quantize(
    clipped: NDArray[np.float64], shares: float | NDArray[np.float64] = 1.0
) -> NDArray[np.int64]:
    """Round rows of norm at most 1 to integers of norm at most `max_norm(shares)`,
    which is GRID for a share of 1.

    Rounding is towards zero, so no row leaves its ball.

    Args:
        clipped: Rows of norm at most 1, (N, k), as from `unit_rows`.
        shares: The weight of each record within its privacy unit, (N,), or one for all.

    Returns:
        The rows in steps of 1/GRID, (N, k).
    """
    limit = np.broadcast_to(max_norm(shares), len(clipped))
    # one step less: a margin for the last bit of the clipping division
    scale = np.maximum(limit - 1, 0)[:, None]
    steps = np.trunc(clipped * scale).astype(np.int64)
    if (np.square(steps).sum(axis=1) > np.square(limit)).any():
        raise AssertionError("a clipped row left the unit ball. Nothing is released.")
    return steps


def max_norm(shares: float | NDArray[np.float64]) -> NDArray[np.int64]:
    """The norm allowed to a record of this share, in steps: ⌊share·GRID⌋, so that
    shares of 1/m add up to at most GRID.

    GRID is a power of two and the product exact; 1/m is rounded by 2⁻⁵³ of itself, and
    GRID/m is an integer or at least 1/m away from one, so the rounding never lifts it
    to the next.
    """
    return np.asarray(np.floor(np.asarray(shares, np.float64) * GRID), np.int64)


def _row_sums(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ over each row, (N, 1), by adding the right half of the columns to the left half
    until one column remains.

    These are log₂(width) elementwise additions, the same ones for every row and any
    number of rows.
    """
    sums = rows.copy()
    while (width := sums.shape[1]) > 1:
        half = width // 2
        sums[:, :half] += sums[:, width - half :]
        sums = sums[:, : width - half]
    return sums if sums.shape[1] else np.zeros((len(rows), 1))


CALIBRATIONS = ("opendp", "analytic")
MAX_EPSILON = 1000.0  # no claim is made beyond it


def delta_of(multiplier: float, epsilon: float) -> float:
    """The exact δ(ε) of Gaussian noise with σ = multiplier · Δ (Balle & Wang 2018,
    theorem 8).
    """
    a, b = 0.5 / multiplier, epsilon * multiplier
    return float(ndtr(a - b) - math.exp(epsilon + log_ndtr(-a - b)))


def epsilon_of(multiplier: float, delta: float) -> float:
    """The smallest ε with δ(ε) ≤ δ of that noise, from above and to nine digits."""
    if delta_of(multiplier, 0.0) <= delta:
        return 0.0
    return bracket(
        lambda epsilon: delta_of(multiplier, epsilon) <= delta,
        0.0,
        1e-10,
        2 * MAX_EPSILON,
    )[1]


def bracket(
    fits: Callable[[float], bool], low: float, tolerance: float, limit: float = math.inf
) -> tuple[float, float]:
    """(a value that does not fit, one that fits) around the smallest that does, within
    a relative tolerance.

    `low` is below it. The search doubles from 1. The second is ∞ if no value up to the
    limit fits.
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
    """c: the cost of the discrete Gaussian over the continuous one, on `size`
    coordinates at this scale in steps.

    Whatever is (ε, δ)-private with continuous noise, N(0, scale²) on every coordinate,
    is (ε + c, e^c δ + e^(ε + c − tail²/2))-private with discrete noise. The costs of
    several mechanisms add up, however they are sampled and chosen. The proof is in
    docs/proofs.md, "The noise". It needs a scale of ten steps; below that nothing is
    promised.
    """
    reach = (math.sqrt(size) + tail) / scale
    return reach * reach / 11.0 if scale >= 10.0 else math.inf


def continuous_delta(delta: float, cost: float) -> float:
    """The δ that continuous noise may have, so that discrete noise has the one given at
    an ε higher by `cost`.

    A billionth of it is for the e^(ε + c − 2048) of up to 10¹² mechanisms: enough at
    any ε + c ≤ `MAX_EPSILON` and δ ≥ 1e-300.
    """
    return delta * math.exp(-cost) * (1 - 1e-9)


@lru_cache(maxsize=256)
def analytic_multiplier(
    epsilon: float, delta: float, size: int, sensitivity: float
) -> float:
    """The smallest σ/Δ for which discrete Gaussian noise is proven (ε, δ)-private;
    sensitivity Δ in steps.

    `discretisation` is taken at the scale of the continuous Gaussian, which is smaller
    than the one returned.
    """
    epsilon = min(epsilon, MAX_EPSILON)
    scale = continuous_multiplier(epsilon, delta) * sensitivity
    cost = discretisation(size, scale)
    if not cost < epsilon / 2:
        raise ValueError(
            f"noise of scale {scale:.3g} steps is too coarse for the analytic "
            f"calibration of {size} numbers: make the summary's steps finer, or set "
            "privacy.calibration = 'opendp'"
        )
    return continuous_multiplier(epsilon - cost, continuous_delta(delta, cost))


@lru_cache(maxsize=256)
def continuous_multiplier(epsilon: float, delta: float) -> float:
    """The smallest σ/Δ for which Gaussian noise is (ε, δ)-private, for any ε > 0. The
    classic formula needs ε < 1.
    """
    smallest = bracket(lambda z: delta_of(z, epsilon) <= delta, 1e-3, 1e-13)[1]
    return smallest * (1 + 1e-6)  # covers the error of cancellation


@lru_cache(maxsize=256)
def opendp_multiplier(epsilon: float, delta: float) -> float:
    """The smallest σ/Δ for which OpenDP certifies (ε, δ) for the very sampler used
    here.
    """
    from opendp.mod import binary_search_param

    smallest = binary_search_param(
        lambda z: _certified(1, z, delta), d_in=1.0, d_out=(epsilon, delta)
    )
    return float(smallest) * (1 + 1e-10)


def multiplier(
    epsilon: float, delta: float, calibration: str, size: int, sensitivity: float
) -> float:
    """Compute σ/Δ for `size` integers of this ℓ₂ sensitivity in steps, by the proof
    that `calibration` names.
    """
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ValueError(
            f"a budget needs ε > 0 and 0 < δ < 1, not ({epsilon}, {delta})"
        )
    if calibration not in CALIBRATIONS:
        raise unknown_name("calibration", calibration, CALIBRATIONS)
    if calibration == "opendp":
        return opendp_multiplier(epsilon, delta)
    return analytic_multiplier(epsilon, delta, size, sensitivity)


def add_noise(values: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    """`values` plus exact discrete Gaussian noise of the given scale, drawn from the
    operating system's randomness.
    """
    noisy = _mechanism(len(values), scale)(values.tolist())
    return np.asarray(noisy, dtype=np.int64)


def draw_noise(
    values: NDArray[np.int64], scale: float, seeded: np.random.Generator | None = None
) -> NDArray[np.int64]:
    """`add_noise`, or in a study rounded Gaussian noise that a generator repeats, and
    that protects nothing.
    """
    if seeded is None:
        return add_noise(values, scale)
    return values + np.rint(seeded.normal(0.0, scale, values.shape)).astype(np.int64)


def _mechanism(size: int, scale: float) -> Any:
    # `opendp.prelude` would import scikit-learn and scipy.stats
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    return make_gaussian(
        vector_domain(atom_domain(T="i64"), size=size),
        l2_distance(T=float),
        scale=scale,
    )


def _certified(size: int, scale: float, delta: float) -> Any:
    from opendp.combinators import make_fix_delta, make_zCDP_to_approxDP

    return make_fix_delta(make_zCDP_to_approxDP(_mechanism(size, scale)), delta)


# in what one record may add: discrete noise then costs what continuous noise does
MIN_STEPS = 2**16


@dataclass(frozen=True, eq=False)
class Summary:
    """Integers that describe one client's data, and their sensitivity to one privacy
    unit.

    Attributes:
        values: The integers, which stand for `values * step`.
        step: The size of one step.
        sensitivity: The largest ℓ₂ distance, in steps, between the summaries of
            neighbouring data sets.
        adjacency: What makes data sets neighbours: replace-one or add-remove.
        records: The public number of units.
        bounded: Whether the sensitivity is a proven bound. A reference scorer for
            studies that has none sets False. Its summaries are released with a known
            seed or not at all.
    """

    values: NDArray[np.int64]
    step: float
    sensitivity: float
    adjacency: str
    records: int
    bounded: bool = True

    def __post_init__(self) -> None:
        least = UNIT_SENSITIVITY[self.adjacency] * MIN_STEPS
        if (
            self.values.ndim != 1
            or self.values.dtype != np.int64
            or not least <= self.sensitivity < math.inf
        ):
            raise ValueError(
                "a summary is one vector of 64-bit integers with a sensitivity of at "
                f"least {least} steps. Choose a smaller step."
            )


def release_multiplier(
    epsilon: float, delta: float, calibration: str, adjacency: str, size: int
) -> float:
    """σ/Δ of a release of `size` integers by any scorer, with steps at least as fine as
    `MIN_STEPS` says.
    """
    return multiplier(
        epsilon,
        delta,
        calibration,
        size,
        float(UNIT_SENSITIVITY[adjacency] * MIN_STEPS),
    )


# scale in steps of a site's share of the noise; docs/proofs.md, "Noise that sites
# share"
LEAST_SHARE = 2.0**8


def noise_scale(
    summary_size: int, sensitivity: float, privacy: PrivacyConfig, honest: int = 1
) -> float:
    """The scale, in steps, of the noise on a summary, or of one site's share of it if
    `honest` sites add theirs.
    """
    budget = (privacy.epsilon, privacy.delta, privacy.calibration, privacy.adjacency)
    scale = release_multiplier(*budget, summary_size) * sensitivity / math.sqrt(honest)
    if honest > 1 and scale < LEAST_SHARE:
        raise ValueError(
            f"a share of the noise of scale {scale:.3g} steps is too coarse for a sum "
            f"over {honest} sites"
        )
    return scale


def release(
    summary: Summary, client: str, privacy: PrivacyConfig, honest: int = 1
) -> Release:
    """Add the noise that makes the summary (ε, δ)-private under its adjacency.

    In a secure sum in which `honest` sites add their noise whatever happens, each adds
    its share: a summary of one site is then not private by itself, and its sum with
    those of the others is.

    The noise comes from the operating system. `unsafe_seed` ≥ 0 replaces it by a
    reproducible draw, which anyone who knows the seed can subtract: every output that
    mentions the release then marks it unsafe.
    """
    if not summary.bounded and privacy.unsafe_seed < 0:
        raise ValueError(
            f"the scorer {privacy.scorer!r} has no bounded sensitivity: set "
            "privacy.unsafe_seed in a study"
        )
    scale = noise_scale(len(summary.values), summary.sensitivity, privacy, honest)
    if not summary.bounded:
        values = summary.values
    else:
        seed = privacy.unsafe_seed
        values = draw_noise(
            summary.values,
            scale,
            np.random.default_rng([seed, *client.encode()]) if seed >= 0 else None,
        )
    return as_release(replace(summary, values=values), client, privacy, scale)


def as_release(
    noisy: Summary, client: str, privacy: PrivacyConfig, scale: float
) -> Release:
    """Return a summary to which noise of this scale was added, as the message to
    send.
    """
    return Release(
        client=client,
        scorer=privacy.scorer,
        records=noisy.records,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        adjacency=noisy.adjacency,
        calibration=privacy.calibration,
        sensitivity=noisy.sensitivity,
        scale=scale,
        step=noisy.step,
        unsafe=privacy.unsafe_seed >= 0,
        account="",  # the client's `BudgetStore` adds it
        arrays={"values": noisy.values},
    )
