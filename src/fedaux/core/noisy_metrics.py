"""Test metrics from counts with noise, each with an interval.

An interval of 95 % holds both kinds of uncertainty: that the tested records are a
sample, and that their counts have noise. It comes from a parametric bootstrap: tests
are drawn from the counts as if they were the truth, noise is added to each, and the
interval is as wide as the results vary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedaux.core.binary_metrics import ScoreCounts
from fedaux.core.metrics import Z
from fedaux.core.rng import numpy_stream

TESTS_DRAWN = 400  # tests that are drawn for an interval
# a count is too small to divide by if noise alone might explain it
LEAST_SIGNAL = 2.0  # standard deviations of its noise
# the same for the records of a class, by figure; intervals of fewer miss too often
SIGNAL_OF_SCORES = {"auc": 6.0, "average_precision": 6.0, "calibration_error": 60.0}

_Numbers = NDArray[np.float64]
Metric = Callable[[_Numbers], float | None]


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval.

    Attributes:
        value: The figure.
        low: Where the interval begins.
        high: Where it ends.
        noise: The standard deviation that the noise on the counts gives the figure.
    """

    value: float
    low: float
    high: float
    noise: float


def estimates(
    values: Mapping[str, Sequence[float]],
    deviation: Mapping[str, float],
    edges: Sequence[float] = (),
) -> dict[str, Estimate]:
    """Return all figures that the tallies of a look give, by name; a figure that noise
    hides is left out.

    Args:
        values: The counts in the bins of each tally (`messages.tallies`).
        deviation: Of the noise on the counts of each tally.
        edges: Where the bins of scores end, as differences of logits.
    """
    tallies = tuple(
        (name, tuple(counts), deviation[name]) for name, counts in values.items()
    )
    return dict(_estimates(tallies, tuple(edges)))


# drawing takes a while, and terminal, report and card show the same figures
@lru_cache(maxsize=256)
def _estimates(
    tallies: tuple[tuple[str, tuple[float, ...], float], ...],
    edges: tuple[float, ...],
) -> dict[str, Estimate]:
    found: dict[str, Estimate | None] = {}
    for tally, values, noise in tallies:
        counts = np.asarray(values)
        if tally == "answers":
            found["accuracy"] = estimate(accuracy, counts, noise)
        elif tally == "hits":
            metric = partial(balanced_accuracy, deviation=noise)
            found["balanced_accuracy"] = estimate(metric, counts, noise)
        elif tally == "scores":
            bounds = probability_bounds(edges)
            for name in SIGNAL_OF_SCORES:
                metric = partial(of_scores, deviation=noise, bounds=bounds, name=name)
                found[name] = estimate(metric, counts, noise, clips=True)
    return {name: figure for name, figure in found.items() if figure is not None}


def estimate(
    metric: Metric, counts: _Numbers, deviation: float, clips: bool = False
) -> Estimate | None:
    """Return a figure of noisy counts with its interval; None if noise hides it.

    Args:
        metric: Computes the figure from counts.
        counts: The noisy counts.
        deviation: Of the noise on each of them.
        clips: Whether the metric raises negative counts to 0. It is then biased under
            noise, by about as much as for the tests that are drawn.
    """
    value = metric(counts)
    truth = without_negatives(counts)
    of_truth = metric(truth)
    if value is None or of_truth is None:
        return None
    records = max(1, round(float(truth.sum())))
    rng = numpy_stream(0, "intervals", len(counts))
    samples = rng.multinomial(records, truth / truth.sum(), TESTS_DRAWN).astype(
        np.float64
    )
    noise = rng.normal(0.0, deviation, samples.shape)
    with_both = _drawn(metric, samples + noise)
    with_noise = _drawn(metric, truth + noise)
    # a figure that most tests cannot give is not known
    if min(len(with_both), len(with_noise)) < TESTS_DRAWN / 2:
        return None
    bias = float(np.mean(with_noise)) - of_truth if clips else 0.0
    value = min(1.0, max(0.0, value - bias))
    # a bias that was estimated is as uncertain as it is large
    half = Z * math.hypot(float(np.std(with_both, ddof=1)), bias)
    low = max(0.0, value - half)
    high = min(1.0, value + half)
    return Estimate(value, low, high, float(np.std(with_noise, ddof=1)))


def _drawn(metric: Metric, tests: _Numbers) -> list[float]:
    drawn = [metric(test) for test in tests]
    return [value for value in drawn if value is not None]


def accuracy(answers: _Numbers) -> float | None:
    """Return the share of right answers, given wrong and right ones."""
    wrong, right = answers
    if wrong + right <= 0:
        return None
    return float(np.clip(right / (wrong + right), 0.0, 1.0))


def recalls(hits: _Numbers, deviation: float) -> list[float | None]:
    """Return the share of each class that is recognised, given wrong and right answers
    for each; None for a class whose records noise might explain.
    """
    shares: list[float | None] = []
    for wrong, right in hits.reshape(-1, 2):
        records = wrong + right
        if records < LEAST_SIGNAL * math.sqrt(2) * deviation:
            shares.append(None)
        else:
            shares.append(float(np.clip(right / records, 0.0, 1.0)))
    return shares


def balanced_accuracy(hits: _Numbers, deviation: float) -> float | None:
    """Return the mean recall; None if that of some class is not known."""
    shares = recalls(hits, deviation)
    known = [share for share in shares if share is not None]
    return float(np.mean(known)) if len(known) == len(shares) else None


def of_scores(
    counts: _Numbers, deviation: float, bounds: Sequence[float], name: str
) -> float | None:
    """Return a figure of `ScoreCounts` from the scores of both classes; None if the
    records of a class may be noise.
    """
    negatives, positives = counts.reshape(2, -1)
    signal = SIGNAL_OF_SCORES[name]
    least = signal * math.sqrt(len(positives)) * deviation
    if negatives.sum() < least or positives.sum() < least:
        return None
    scores = ScoreCounts.of_bins(
        bounds, without_negatives(positives), without_negatives(negatives)
    )
    figure: float | None = getattr(scores, name)
    return figure


def without_negatives(counts: ArrayLike) -> _Numbers:
    """Return the closest counts that are not negative and have the same sum.

    Setting negative counts to 0 would add records to bins that have few.
    """
    values = np.asarray(counts, dtype=np.float64)
    total = max(float(values.sum()), 1.0)
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(values) + 1)
    kept = int(np.flatnonzero(ordered > excess)[-1])
    return np.asarray(np.maximum(values - excess[kept], 0.0))


def probability_bounds(edges: Sequence[float]) -> list[float]:
    """Return the bounds of bins of scores as probabilities, from 0 to 1."""
    inner = [1 / (1 + math.exp(-edge)) for edge in edges]
    return [0.0, *inner, 1.0]
