"""Test metrics from counts with noise, each with an interval.

The tallies of a look count the same records in different ways. Their noisy counts are
first made to agree by least squares, which every figure gains from: the number of right
answers is also the sum of the right answers of all classes, and that of some bins of
scores.

An interval of 95 % holds both kinds of uncertainty: that the tested records are a
sample, and that their counts have noise. It comes from a parametric bootstrap: tests
are drawn from the counts as if they were the truth, noise is added to each, and the
interval is as wide as the results vary. Negative counts stay as they are: raising them
to 0 would make figures seem more certain than they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedaux.core.binary_metrics import BINS
from fedaux.core.metrics import Z
from fedaux.core.rng import numpy_stream

TESTS_DRAWN = 4000  # tests that are drawn for an interval
NUMBERS_DRAWN = 4_000_000  # of all of them: fewer tests for many classes
# what a class needs for a figure, in standard deviations of the noise on the number of
# its records: intervals of fewer miss too often
LEAST_SIGNAL = {
    "accuracy": 0.0,
    "balanced_accuracy": 4.0,
    "auc": 10.0,
    "average_precision": 15.0,
    "calibration_error": 30.0,
}

_Numbers = NDArray[np.float64]
# of counts in bins, the last axis of an array; nan where they define no figure
Metric = Callable[[_Numbers], _Numbers]
CountsByTally = Mapping[str, _Numbers]


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
    deviation = {name: noise for name, _, noise in tallies}
    values = {name: np.asarray(counts) for name, counts, _ in tallies}
    rng = numpy_stream(0, "intervals")
    bins = sum(map(len, values.values()))
    draws = min(TESTS_DRAWN, max(NUMBERS_DRAWN // bins, 100))
    noise = {
        name: rng.normal(0.0, deviation[name], (draws, len(counts)))
        for name, counts in values.items()
    }
    counts = agreeing(values, deviation, edges)
    noise = agreeing(noise, deviation, edges)
    found: dict[str, Estimate | None] = {}
    for name, (tally, metric) in metrics(edges).items():
        if tally in counts:
            found[name] = estimate(name, metric, counts[tally], noise[tally], rng)
    return {name: figure for name, figure in found.items() if figure is not None}


def metrics(edges: Sequence[float] = ()) -> dict[str, tuple[str, Metric]]:
    """Return each figure's tally, and how it is computed from the counts of it."""
    bounds = probability_bounds(edges)
    return {
        "accuracy": ("answers", accuracy),
        "balanced_accuracy": ("hits", balanced_accuracy),
        "auc": ("scores", auc),
        "average_precision": ("scores", average_precision),
        "calibration_error": ("scores", partial(calibration_error, bounds=bounds)),
    }


def agreeing(
    counts: CountsByTally, deviation: Mapping[str, float], edges: Sequence[float]
) -> dict[str, _Numbers]:
    """Return the least-squares estimate of the true counts in all tallies, of which the
    last axis are the bins.

    The tallies are the levels of a tree: the answers are sums of the hits, and with an
    edge at 0, where the answer changes, the hits are sums of scores. So estimates of
    sums are weighted upwards, and what they were changed by is spread downwards.
    """
    found = dict(counts)
    if "answers" not in counts or "hits" not in counts:
        return found
    hits = by_class(counts["hits"])
    variance = np.full(hits.shape[-2:], deviation["hits"] ** 2)
    scores = None
    if "scores" in counts and 0.0 in edges:
        scores = counts["scores"]
        sums, sizes = sums_of_scores(scores, edges)
        of_sums = sizes * deviation["scores"] ** 2
        hits = (hits * of_sums + sums * variance) / (of_sums + variance)
        variance = of_sums * variance / (of_sums + variance)
    answers = counts["answers"]
    weight = deviation["answers"] ** 2 / (
        deviation["answers"] ** 2 + variance.sum(axis=0)
    )
    answers = answers + weight * (hits.sum(axis=-2) - answers)
    change = answers - hits.sum(axis=-2)
    hits = hits + change[..., None, :] * variance / variance.sum(axis=0)
    found |= {"answers": answers, "hits": hits.reshape(counts["hits"].shape)}
    if scores is not None:
        change = ((hits - sums) / sizes).reshape(counts["hits"].shape)
        found["scores"] = scores + change[..., hits_of_scores(edges)]
    return found


def by_class(counts: _Numbers, classes: int = 0) -> _Numbers:
    """Return counts with one axis for the class, and another for its bins: by default
    two, of wrong and right answers.
    """
    shape = (classes, -1) if classes else (-1, 2)
    return counts.reshape(*counts.shape[:-1], *shape)


def hits_of_scores(edges: Sequence[float]) -> NDArray[np.int64]:
    """Return the bin of hits that each bin of scores belongs to, given an edge at 0."""
    is_second = np.append(-math.inf, edges) >= 0
    return np.concatenate([np.where(is_second, 0, 1), np.where(is_second, 3, 2)])


def sums_of_scores(
    scores: _Numbers, edges: Sequence[float]
) -> tuple[_Numbers, _Numbers]:
    """Return (class, wrong or right answers) with the sums of bins of scores, and how
    many bins each sum has.
    """
    belongs = np.eye(4)[hits_of_scores(edges)]
    return by_class(scores @ belongs), by_class(belongs.sum(axis=0))


def estimate(
    name: str,
    metric: Metric,
    counts: _Numbers,
    noise: _Numbers,
    rng: np.random.Generator,
) -> Estimate | None:
    """Return a figure of noisy counts with its interval; None if noise hides it.

    Args:
        name: The figure.
        metric: Computes it from counts.
        counts: The noisy counts.
        noise: Draws of the noise on them.
        rng: Draws tests.
    """
    if is_hidden(name, counts, noise):
        return None
    truth = without_negatives(counts)
    records = max(1, round(float(truth.sum())))
    drawn = rng.multinomial(records, truth / truth.sum(), len(noise))
    tests = drawn.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(metric(counts))
        of_truth = float(metric(truth))
        sampled = metric(tests)
        with_both = metric(tests + noise)
        with_noise = metric(truth + noise)
    known = np.isfinite(sampled) & np.isfinite(with_both) & np.isfinite(with_noise)
    # a figure that most tests cannot give is not known
    if not math.isfinite(value + of_truth) or known.mean() < 0.5:
        return None
    noise_deviation = float(with_noise[known].std(ddof=1))
    of_sample = float(sampled[known].var(ddof=1))
    # noise is smaller or larger in other tests than in this one
    of_noise = max(0.0, float(with_both[known].var(ddof=1)) - of_sample)
    if name == "calibration_error":  # a mean of absolute values, which noise raises
        bias = float(with_noise[known].mean()) - of_truth
        value = min(1.0, max(0.0, value - bias))
        # a bias that was estimated is as uncertain as it is large
        half = Z * math.sqrt(of_sample + of_noise + bias**2)
        return Estimate(
            value, max(0.0, value - half), min(1.0, value + half), noise_deviation
        )
    value = min(1.0, max(0.0, value))
    low, high = share_interval(value, records, of_sample, of_noise)
    return Estimate(value, low, high, noise_deviation)


def share_interval(
    value: float, records: int, of_sample: float, of_noise: float
) -> tuple[float, float]:
    """Return the interval of a share with two variances.

    Without noise it is Wilson's, of as many records as give a share the variance of the
    sample. As there, each end is the share from which the value is `Z` standard
    deviations away: those that a sample has at this share, and those of noise.
    """
    variance = value * (1 - value)
    trials = variance / of_sample if of_sample > 0 and variance > 0 else records
    widening = Z * Z / trials
    centre = (value + widening / 2) / (1 + widening)
    product = (value * value - Z * Z * of_noise) / (1 + widening)
    half = math.sqrt(max(0.0, centre * centre - product))
    return max(0.0, centre - half), min(1.0, centre + half)


def is_hidden(name: str, counts: _Numbers, noise: _Numbers) -> bool:
    """Whether noise may explain a class without whose records there is no figure."""
    if name == "accuracy":
        return float(counts.sum()) <= 0
    classes = 0 if name == "balanced_accuracy" else 2
    records = by_class(counts, classes).sum(axis=-1)
    deviation = by_class(noise, classes).sum(axis=-1).std(axis=0)
    return bool((records < LEAST_SIGNAL[name] * deviation).any())


def accuracy(answers: _Numbers) -> _Numbers:
    """Return the share of right answers, given wrong and right ones."""
    return np.asarray(answers[..., 1] / answers.sum(axis=-1))


def recalls(hits: _Numbers) -> _Numbers:
    """Return the share of each class that is recognised, given wrong and right answers
    for each.
    """
    counts = by_class(hits)
    return np.asarray(counts[..., 1] / counts.sum(axis=-1))


def balanced_accuracy(hits: _Numbers) -> _Numbers:
    """Return the mean recall."""
    return np.asarray(np.clip(recalls(hits), 0.0, 1.0).mean(axis=-1))


def auc(scores: _Numbers) -> _Numbers:
    """Return the area under the ROC curve of counts by class and bin of the score, as
    if records of a bin had the same score.
    """
    negatives, positives = np.moveaxis(by_class(scores, 2), -2, 0)
    below = np.cumsum(negatives, axis=-1) - negatives / 2
    pairs = positives.sum(axis=-1) * negatives.sum(axis=-1)
    return np.asarray((positives * below).sum(axis=-1) / pairs)


def average_precision(scores: _Numbers) -> _Numbers:
    """Return the mean precision over all events, each at the threshold of its bin."""
    negatives, positives = np.moveaxis(by_class(scores, 2), -2, 0)[..., ::-1]
    found = np.cumsum(positives, axis=-1)
    raised = found + np.cumsum(negatives, axis=-1)
    precision = np.divide(found, raised, out=np.zeros_like(found), where=raised > 0)
    # of hardly any records, noise makes any number
    precision = np.clip(precision, 0.0, 1.0)
    return np.asarray((positives * precision).sum(axis=-1) / positives.sum(axis=-1))


def calibration_error(scores: _Numbers, bounds: Sequence[float]) -> _Numbers:
    """Return the mean difference of probability and share of events, in the bins of a
    calibration curve, as if records of a bin had its middle as their probability.
    """
    negatives, positives = np.moveaxis(by_class(scores, 2), -2, 0)
    middles = (np.asarray(bounds[:-1]) + np.asarray(bounds[1:])) / 2
    inner = np.linspace(0.0, 1.0, BINS + 1)[1:-1]
    place = np.searchsorted(inner, middles)
    expected = (negatives + positives) * middles
    differences = (expected - positives) @ np.eye(BINS)[place]
    return np.asarray(np.abs(differences).sum(axis=-1) / scores.sum(axis=-1))


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
