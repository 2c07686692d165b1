"""Figures of a confusion table against scikit-learn's, intervals against their
definition, and collapses.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    roc_auc_score,
    roc_curve,
)

from fedaux.core.binary_metrics import ScoreCounts
from fedaux.core.metrics import Evaluation, wilson

NAMES = ("normal", "pneumonia")


def answers(
    classes: int, seed: int = 0, records: int = 300
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities that know a little of the labels, with ties."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, records)
    logits = np.round(
        rng.normal(size=(records, classes)) + 1.2 * np.eye(classes)[labels], 1
    )
    return softmax(logits, axis=1), labels


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_figures_are_those_of_scikit_learn(classes: int) -> None:
    probabilities, labels = answers(classes)
    said, found = probabilities.argmax(axis=1), Evaluation.of(probabilities, labels)
    assert found.accuracy == pytest.approx((said == labels).mean())
    assert found.majority == pytest.approx(np.bincount(labels).max() / len(labels))
    assert found.balanced_accuracy == pytest.approx(
        balanced_accuracy_score(labels, said)
    )
    assert found.macro_f1 == pytest.approx(f1_score(labels, said, average="macro"))
    wanted = roc_auc_score(
        labels,
        probabilities[:, 1] if classes == 2 else probabilities,
        multi_class="ovr",
    )
    assert found.auc == pytest.approx(wanted)
    tested = [1] if classes == 2 else list(range(classes))
    precisions = [
        average_precision_score(labels == label, probabilities[:, label])
        for label in tested
    ]
    assert found.average_precision == pytest.approx(np.mean(precisions))
    recalls = []
    for label in tested:
        alarms, recall, _ = roc_curve(
            labels == label, probabilities[:, label], drop_intermediate=False
        )
        recalls.append(recall[alarms <= 0.1].max())
    assert found.recall_at_rate == pytest.approx(np.mean(recalls))


def test_the_area_is_the_share_of_pairs_in_the_right_order() -> None:
    scores, positive = (
        np.array([0.1, 0.4, 0.4, 0.8]),
        np.array([False, True, False, True]),
    )
    pairs = [
        float(p > n) + 0.5 * float(p == n)
        for p in scores[positive]
        for n in scores[~positive]
    ]
    assert ScoreCounts.of(scores, positive).auc == pytest.approx(np.mean(pairs))


def test_one_class_has_no_figures_of_ranks() -> None:
    found = Evaluation.of(np.array([[0.2, 0.8]]), np.array([1]))
    assert (found.auc, found.average_precision, found.recall_at_rate) == (None,) * 3
    assert found.calibration_error == pytest.approx(0.2)


def test_calibration_of_more_classes_is_that_of_the_answer() -> None:
    """Guo et al. (2017): the confidence against the accuracy."""
    probabilities, labels = answers(3)
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, 11)
    place = np.clip(np.digitize(confidence, edges, right=True), 1, 10)
    error = sum(
        abs(confidence[place == bin].mean() - right[place == bin].mean())
        * (place == bin).mean()
        for bin in np.unique(place)
    )
    found = Evaluation.of(probabilities, labels)
    assert found.calibration_error == pytest.approx(error)


def test_answers_that_are_no_numbers_have_no_calibration() -> None:
    probabilities, labels = answers(2)
    probabilities[0] = np.nan
    assert Evaluation.of(probabilities, labels).calibration is None


def test_classes_without_records_are_in_no_mean() -> None:
    found = Evaluation(np.array([[4, 0, 0], [0, 0, 0], [1, 0, 3]]))
    assert found.balanced_accuracy == pytest.approx((1 + 3 / 4) / 2)
    assert np.isnan(found.recalls[1])
    assert found.tested.tolist() == [0, 2]
    assert list(found.to_dict("abc")["classes"]) == ["a", "c"]


def test_the_second_of_two_classes_is_the_positive_one() -> None:
    found = Evaluation(np.array([[30, 10], [5, 55]]))
    assert (found.specificity, found.sensitivity) == (0.75, 55 / 60)
    assert Evaluation(np.eye(3, dtype=np.int64)).sensitivity is None
    assert set(found.summary()) == {
        "balanced_accuracy",
        "macro_f1",
        "majority",
        "sensitivity",
        "specificity",
    }


def test_intervals_solve_their_equation() -> None:
    """Wilson's limits are the shares p whose own deviation puts the share that was seen
    at 1.96.
    """
    for hits, trials in ((0, 10), (3, 20), (19, 20), (200, 200)):
        for limit in wilson(hits, trials):
            if 0 < limit < 1:
                assert abs(hits / trials - limit) == pytest.approx(
                    1.96 * np.sqrt(limit * (1 - limit) / trials)
                )
    assert wilson(0, 0) == (0.0, 1.0)
    one = Evaluation(np.array([[30, 10], [5, 55]])).of_class(0)
    assert one.low < one.recall == 0.75 < one.high


def test_one_answer_to_everything_is_no_success() -> None:
    """As it was reported: 73.5 %, and "pneumonia" to every image."""
    found = Evaluation(np.array([[0, 265], [0, 735]]))
    assert found.accuracy == found.majority == 0.735
    said = found.collapse(NAMES)
    assert found.collapsed
    assert "does not beat always answering 'pneumonia'" in said
    assert "73.5 % against 73.5 %" in said
    assert "balanced accuracy 50.0 % against 50.0 %" in said
    # a little luck
    assert not Evaluation(np.array([[2, 263], [3, 732]])).beats_majority
    assert Evaluation(np.array([[200, 65], [60, 675]])).beats_majority


def test_a_class_that_is_given_up_is_named() -> None:
    table = np.diag([90, 90, 90])
    assert Evaluation(table).collapse("abc") == ""
    table[2] = [60, 25, 5]
    assert "gives up 1 of 3 classes" in Evaluation(table).collapse("abc")
    assert "'c' (6 %)" in Evaluation(table).collapse("abc")
    many = np.diag([40] * 6 + [0] * 4)
    many[6:, 0] = 40
    assert "4 of 10 classes" in Evaluation(many).collapse("abcdefghij")
    assert "and 1 more" in Evaluation(many).collapse("abcdefghij")
    # few records are no proof
    assert Evaluation(np.array([[50, 0, 0], [0, 50, 0], [1, 1, 0]])).given_up == ()


def test_a_rare_class_that_is_recognised_is_no_collapse() -> None:
    """Accuracy below the majority's alone says nothing: rare classes cost it."""
    found = Evaluation(np.array([[9, 1], [40, 950]]))
    assert found.accuracy < found.majority
    assert found.collapse(NAMES) == ""
    assert not found.collapsed
