"""P3: the Gaussian mechanism on a summary with a proven sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.config.sections import PrivacyConfig
from fedaux.core.messages import Release
from fedaux.privacy import gaussian
from fedaux.privacy.accounting import Mechanism
from fedaux.privacy.clipping import UNIT_SENSITIVITY

MIN_STEPS = 2**16  # in what one record may add: discrete noise then costs what continuous noise does


@dataclass(frozen=True, eq=False)
class Summary:
    """Integers that describe one client's data, and their sensitivity to one record.

    `values * step` is what they mean; neighbouring data sets differ by at most `sensitivity` steps in ℓ₂. A reference
    scorer for studies that has no such bound sets `bounded=False`, and is released with a known seed or not at all.
    """

    values: NDArray[np.int64]
    step: float
    sensitivity: float
    adjacency: str
    records: int
    bounded: bool = True

    def __post_init__(self) -> None:
        least = UNIT_SENSITIVITY[self.adjacency] * MIN_STEPS
        if self.values.ndim != 1 or self.values.dtype != np.int64 or not least <= self.sensitivity < math.inf:
            raise ValueError(
                f"a summary is one vector of 64-bit integers with a sensitivity of at least {least} steps; choose a "
                "smaller step"
            )


def release_mechanism(size: int, privacy: PrivacyConfig) -> Mechanism:
    """The mechanism of a release of `size` integers; it is known before any record is read."""
    multiplier = release_multiplier(privacy.epsilon, privacy.delta, privacy.calibration, privacy.adjacency, size)
    return Mechanism(multiplier * UNIT_SENSITIVITY[privacy.adjacency], size=size, grid=float(MIN_STEPS))


def release_multiplier(epsilon: float, delta: float, calibration: str, adjacency: str, size: int) -> float:
    """σ/Δ of a release of `size` integers by any scorer, with steps at least as fine as `MIN_STEPS` says."""
    return gaussian.multiplier(epsilon, delta, calibration, size, float(UNIT_SENSITIVITY[adjacency] * MIN_STEPS))


def release(summary: Summary, client: str, privacy: PrivacyConfig) -> Release:
    """Add the noise that makes the summary (ε, δ)-private under its adjacency.

    The noise comes from the operating system. `unsafe_seed` ≥ 0 replaces it by a reproducible draw, which anybody who
    knows the seed can subtract: every output that mentions the release then marks it unsafe.
    """
    if not summary.bounded and privacy.unsafe_seed < 0:
        raise ValueError(
            f"the scorer {privacy.scorer!r} has no bounded sensitivity: set privacy.unsafe_seed in a study"
        )
    budget = (privacy.epsilon, privacy.delta, privacy.calibration, summary.adjacency)
    scale = release_multiplier(*budget, len(summary.values)) * summary.sensitivity
    if not summary.bounded:
        values = summary.values
    elif privacy.unsafe_seed >= 0:
        rng = np.random.default_rng([privacy.unsafe_seed, *client.encode()])
        values = summary.values + np.rint(rng.normal(0.0, scale, summary.values.shape)).astype(np.int64)
    else:
        values = gaussian.add_noise(summary.values, scale)
    return Release(
        client=client,
        scorer=privacy.scorer,
        records=summary.records,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        adjacency=summary.adjacency,
        calibration=privacy.calibration,
        sensitivity=summary.sensitivity,
        scale=scale,
        step=summary.step,
        unsafe=privacy.unsafe_seed >= 0,
        account="",  # the client's `BudgetStore` adds it
        arrays={"values": values},
    )
