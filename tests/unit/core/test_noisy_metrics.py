"""Metrics from counts with noise: right without noise, and intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest

from fedaux.core.metrics import Evaluation
from fedaux.core.noisy_metrics import (
    Estimate,
    estimates,
    recalls,
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
    held = dict.fromkeys(("accuracy", "balanced_accuracy", "auc"), 0)
    tests = 12
    for _ in range(tests):
        figures = noisy(drawn(rng, 1500), 8.0, rng)
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
    assert recalls(np.array([1.0, 2.0, 100.0, 300.0]), 8.0) == [None, 0.75]


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
