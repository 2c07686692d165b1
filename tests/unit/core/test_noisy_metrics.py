"""Metrics from counts with noise: right without noise, and intervals that hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from fedaux.core.binary_metrics import ScoreCounts
from fedaux.core.metrics import Evaluation, wilson
from fedaux.core.noisy_metrics import (
    Estimate,
    agreeing,
    estimates,
    hits_of_scores,
    metrics,
    probability_bounds,
    share_interval,
    without_negatives,
)

EDGES = (-2.0, 0.0, 2.0)


def drawn(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """The counts of a test of a model that is right for 82 % of the records."""
    labels = (rng.random(count) < 0.4).astype(np.int64)
    scores = rng.normal(1.8 * (2 * labels - 1), 2.0)
    right = (scores > 0) == labels
    bins = np.searchsorted(EDGES, scores, side="right")
    return {
        "answers": np.bincount(right, minlength=2).astype(float),
        "hits": np.bincount(2 * labels + right, minlength=4).astype(float),
        "scores": np.bincount(4 * labels + bins, minlength=8).astype(float),
    }


def noisy(
    counts: dict[str, np.ndarray], deviation: float, rng: np.random.Generator
) -> dict[str, Estimate]:
    values = {
        name: (value + rng.normal(0, deviation, len(value))).tolist()
        for name, value in counts.items()
    }
    return estimates(values, dict.fromkeys(values, deviation), EDGES)


def test_without_noise_they_are_those_of_the_table() -> None:
    rng = np.random.default_rng(0)
    counts = drawn(rng, 5000)
    figures = noisy(counts, 1e-9, rng)
    wrong, right = counts["hits"].reshape(2, 2).T
    table = np.array([[right[0], wrong[0]], [wrong[1], right[1]]], np.int64)
    exact = Evaluation(table)
    assert figures["accuracy"].value == pytest.approx(exact.accuracy)
    assert figures["balanced_accuracy"].value == pytest.approx(exact.balanced_accuracy)
    assert figures["accuracy"].noise < 1e-9


def test_intervals_contain_sampling_and_noise() -> None:
    rng = np.random.default_rng(1)
    truth = noisy(drawn(rng, 2_000_000), 1e-9, rng)
    held = dict.fromkeys(truth, 0)
    tests = 12
    for _ in range(tests):
        figures = noisy(drawn(rng, 1500), 6.0, rng)
        for name in held:
            figure = figures[name]
            held[name] += figure.low <= truth[name].value <= figure.high
    # studies/site_tests.py measures the coverage; by chance, 12 draws miss 4 times in
    # one run of 700
    assert all(count >= 9 for count in held.values()), held


def test_noise_that_hides_a_figure_leaves_it_out() -> None:
    rng = np.random.default_rng(2)
    figures = noisy(drawn(rng, 100), 30.0, rng)
    assert "auc" not in figures
    assert "balanced_accuracy" not in figures


def test_counts_without_negatives_keep_their_sum() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        counts = rng.normal(2.0, 5.0, 12)
        fixed = without_negatives(counts)
        assert fixed.min() >= 0
        assert fixed.sum() == pytest.approx(max(counts.sum(), 1.0))
        # the order of the bins stays
        assert np.array_equal(
            np.argsort(fixed[fixed > 0]), np.argsort(counts[fixed > 0])
        )


def as_vector(counts: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([counts[name] for name in ("answers", "hits", "scores")])


@pytest.mark.parametrize("edges", [EDGES, (0.0, 1.0)])
def test_tallies_agree_as_by_least_squares(edges: tuple[float, ...]) -> None:
    rng = np.random.default_rng(4)
    bins = 2 * (len(edges) + 1)
    of_hits = np.eye(4)[hits_of_scores(edges)].T
    of_answers = np.tile(np.eye(2), 2) @ of_hits
    counted = np.concatenate([of_answers, of_hits, np.eye(bins)])
    deviation = {"answers": 3.0, "hits": 5.0, "scores": 4.0}
    sizes = [2, 4, bins]
    each = np.repeat(list(deviation.values()), sizes)
    truth = counted @ rng.uniform(0, 100, bins)
    values = truth + rng.normal(0, each)
    parts = np.split(values, np.cumsum(sizes)[:-1])
    found = agreeing(dict(zip(deviation, parts, strict=True)), deviation, edges)
    best, *_ = np.linalg.lstsq(counted / each[:, None], values / each, rcond=None)
    assert as_vector(found) == pytest.approx(counted @ best)
    # what agrees stays, and many draws at a time are as good as one
    rows = {name: np.stack([part, part]) for name, part in found.items()}
    assert agreeing(rows, deviation, edges)["scores"][1] == pytest.approx(
        found["scores"]
    )


def test_scores_without_an_edge_where_the_answer_changes_stand_alone() -> None:
    rng = np.random.default_rng(5)
    counts = drawn(rng, 500)
    deviation = dict.fromkeys(counts, 5.0)
    found = agreeing(counts, deviation, (-2.0, 1.0, 2.0))
    assert np.array_equal(found["scores"], counts["scores"])
    only = {"scores": counts["scores"]}
    assert agreeing(only, deviation, EDGES) == only


def test_figures_of_bins_are_those_of_scores() -> None:
    counts = drawn(np.random.default_rng(6), 3000)
    negatives, positives = counts["scores"].reshape(2, -1)
    scores = ScoreCounts.of_bins(probability_bounds(EDGES), positives, negatives)
    for name in ("auc", "average_precision", "calibration_error"):
        tally, metric = metrics(EDGES)[name]
        found = metric(np.stack([counts[tally], counts[tally][::-1]]))
        assert found[0] == pytest.approx(getattr(scores, name)), name


def test_the_interval_of_a_share() -> None:
    # of the sample alone: Wilson's
    low, high = share_interval(0.9, 50, 0.09 / 50, 0.0)
    assert (low, high) == pytest.approx(wilson(45, 50))
    # of noise alone
    low, high = share_interval(0.5, 10**9, 0.25 / 10**9, 0.01**2)
    assert (low, high) == pytest.approx((0.4804, 0.5196), abs=1e-4)
    # all were right: that is not certain of others
    low, high = share_interval(1.0, 50, 0.0, 0.0)
    assert (low, high) == pytest.approx(wilson(50, 50))


def test_bins_of_hardly_any_records_do_not_hide_average_precision() -> None:
    """Their precision is noise divided by noise: the interval had 68 points."""
    rng = np.random.default_rng(7)
    edges = (-30.0, -25.0, -2.0, 0.0, 2.0, 25.0, 30.0)
    labels = (rng.random(1600) < 0.4).astype(np.int64)
    scores = rng.normal(1.8 * (2 * labels - 1), 2.0)
    bins = np.searchsorted(edges, scores, side="right")
    counts = np.bincount(8 * labels + bins, minlength=16)
    values = {"scores": (counts + rng.normal(0, 9.0, 16)).tolist()}
    found = estimates(values, {"scores": 9.0}, edges)["average_precision"]
    assert found.high - found.low < 0.25
