"""Figures of a score against scikit-learn's, from records and from counts."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.calibration import calibration_curve
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from fedaux.core.binary_metrics import ScoreCounts

DIGITS = (1, 2, 6)  # of scores: the fewer, the more of them are equal
Scored = tuple[NDArray[np.float64], NDArray[np.bool_]]


def scored(digits: int, records: int = 400, share: float = 0.3) -> Scored:
    rng = np.random.default_rng(digits)
    event = rng.uniform(size=records) < share
    scores = np.clip(rng.normal(0.4 + 0.2 * event, 0.2), 0, 1)
    return np.round(scores, digits), event


@pytest.mark.parametrize("digits", DIGITS)
def test_figures_are_those_of_scikit_learn(digits: int) -> None:
    scores, event = scored(digits)
    found = ScoreCounts.of(scores, event)
    assert found.auc == pytest.approx(roc_auc_score(event, scores), abs=1e-12)
    assert found.average_precision == pytest.approx(
        average_precision_score(event, scores), abs=1e-12
    )
    false_alarms, recall, _ = roc_curve(event, scores, drop_intermediate=False)
    for rate in (0.0, 0.01, 0.1, 0.5, 1.0):
        wanted = recall[false_alarms <= rate].max()
        assert found.recall_at(rate) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("digits", DIGITS)
def test_calibration_is_that_of_scikit_learn(digits: int) -> None:
    scores, event = scored(digits)
    found = ScoreCounts.of(scores, event).calibration(10)
    observed, predicted = calibration_curve(event, scores, n_bins=10)
    np.testing.assert_allclose(found.observed, observed)
    np.testing.assert_allclose(found.predicted, predicted)
    assert found.records.sum() == len(scores)
    by_record = abs(predicted - observed)
    assert found.error == pytest.approx(np.average(by_record, weights=found.records))


def test_a_calibrated_score_has_no_error() -> None:
    scores = np.repeat([0.25, 0.75], 4)
    event = np.array([1, 0, 0, 0, 1, 1, 1, 0], dtype=np.bool_)
    assert ScoreCounts.of(scores, event).calibration_error == 0
    assert ScoreCounts.of(scores, ~event).calibration_error == pytest.approx(0.5)


def test_counts_in_bins_are_records_at_their_middles() -> None:
    edges = np.linspace(0, 1, 21)
    scores, event = scored(6)
    with_event, _ = np.histogram(scores[event], edges)
    without, _ = np.histogram(scores[~event], edges)
    binned = ScoreCounts.of_bins(edges, with_event, without)
    middles = (edges[:-1] + edges[1:]) / 2
    place = np.minimum(np.digitize(scores, edges) - 1, 19)
    exact = ScoreCounts.of(middles[place], event)
    for name in ("auc", "average_precision", "calibration_error"):
        assert getattr(binned, name) == pytest.approx(getattr(exact, name), abs=1e-12)
    assert binned.recall_at(0.2) == pytest.approx(exact.recall_at(0.2))
    assert binned.auc == pytest.approx(ScoreCounts.of(scores, event).auc, abs=0.01)


def test_noisy_counts_may_be_negative_or_fractions() -> None:
    found = ScoreCounts.of_bins([0, 0.5, 1], [-1.5, 2.5], [3.25, -0.5])
    assert found.positives.tolist() == [0, 2.5]
    assert (found.auc, found.average_precision, found.recall_at()) == (1, 1, 1)
    assert found.calibration_error == pytest.approx(0.25)


def test_what_no_record_defines_is_none() -> None:
    scores = np.array([0.2, 0.8])
    ill = ScoreCounts.of(scores, np.array([True, True]))
    assert (ill.auc, ill.recall_at(), ill.average_precision) == (None, None, 1)
    healthy = ScoreCounts.of(scores, np.array([False, False]))
    assert (healthy.auc, healthy.average_precision) == (None, None)
    assert healthy.calibration_error == pytest.approx(0.5)
    nothing = ScoreCounts.of_bins([0, 1], [0], [-1])
    assert (nothing.auc, nothing.calibration_error) == (None, None)


def test_no_threshold_below_the_rate_finds_nothing() -> None:
    scores = np.array([0.1, 0.9, 0.9])
    found = ScoreCounts.of(scores, np.array([False, True, False]))
    assert found.recall_at(0.1) == 0
    assert found.recall_at(0.5) == 1
