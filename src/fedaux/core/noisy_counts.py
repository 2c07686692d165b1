"""What counts with noise tell together: a total that all divisions of the same records
share, and quantiles of a column, each with its uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedaux.core.metrics import Z
from fedaux.core.noisy_metrics import Estimate

# a quantile is hidden by noise if its interval is a larger share of the range
WIDEST_INTERVAL = 0.5


@dataclass(frozen=True)
class NoisyCount:
    """A count with the standard deviation of its noise."""

    value: float
    noise: float

    @property
    def half(self) -> float:
        """Half of the 95 % interval."""
        return Z * self.noise

    @property
    def low(self) -> float:
        return max(0.0, self.value - self.half)

    @property
    def high(self) -> float:
        return max(0.0, self.value + self.half)

    def __add__(self, other: NoisyCount) -> NoisyCount:
        """Add a count with independent noise."""
        noise = math.hypot(self.noise, other.noise)
        return NoisyCount(self.value + other.value, noise)


def consistent(
    values: Mapping[str, Sequence[float]], deviation: Mapping[str, float]
) -> tuple[NoisyCount, dict[str, list[NoisyCount]]]:
    """Return how many records there are, and the counts of each division that are
    closest to the noisy ones and add up to that.

    Every record is in one bin of each division, so each of them measures the total.
    """
    sums = {name: float(np.sum(counts)) for name, counts in values.items()}
    weights = {
        name: 1 / (len(counts) * deviation[name] ** 2)
        for name, counts in values.items()
    }
    weight = sum(weights.values())
    total = sum(weights[name] * sums[name] for name in values) / weight
    moved: dict[str, list[NoisyCount]] = {}
    for name, counts in values.items():
        bins = len(counts)
        # of what a division says beyond its sum, and of the total's share in a bin
        within = deviation[name] ** 2 * (1 - 1 / bins)
        noise = math.sqrt(within + 1 / (weight * bins**2))
        shift = (total - sums[name]) / bins
        moved[name] = [NoisyCount(count + shift, noise) for count in counts]
    return NoisyCount(total, math.sqrt(1 / weight)), moved


def quantiles(
    edges: Sequence[float], counts: Sequence[NoisyCount], shares: Sequence[float]
) -> list[Estimate | None]:
    """Return quantiles of the records that are counted below, between and above the
    edges; None for one that noise hides.

    An interval begins at the last edge that surely has too few records below it, and
    ends at the first one that surely has too many. In between, records are taken to be
    spread evenly within a bin. Those outside count as the ends of the range.
    """
    values = np.array([count.value for count in counts])
    noise = max(count.noise for count in counts)
    below = np.arange(1, len(values))  # bins below each edge
    widest = WIDEST_INTERVAL * (edges[-1] - edges[0])
    found: list[Estimate | None] = []
    for share in shares:
        excess = np.cumsum(values)[:-1] - share * values.sum()
        squares = (1 - share) ** 2 * below + share**2 * (len(values) - below)
        half = Z * noise * np.sqrt(squares)
        before = np.flatnonzero(excess < -half)
        behind = np.flatnonzero(excess > half)
        low = edges[before[-1]] if len(before) else edges[0]
        high = edges[behind[0]] if len(behind) else edges[-1]
        upper = np.maximum.accumulate(excess)
        lower = np.minimum.accumulate(excess[::-1])[::-1]
        value = float(np.interp(0.0, (upper + lower) / 2, edges))
        value = min(high, max(low, value))
        known = low < high and high - low <= widest
        deviation = (high - low) / (2 * Z)
        found.append(Estimate(value, low, high, deviation) if known else None)
    return found
