"""Test metrics on labelled records: figures next to their baseline, and whether a model
has collapsed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.core.binary_metrics import FALSE_ALARMS, Calibration, ScoreCounts

Z = 1.96  # two-sided 95 %
FEWEST_RECORDS = (
    5  # records of a class below which "none was recognised" is not significant
)
NAMED = 3  # classes that a warning names
METRIC_NAMES = {  # of `Evaluation.summary`, for readers
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro-F1",
    "auc": "AUC",
    "average_precision": "average precision",
    "recall_at_rate": f"recall at {100 * FALSE_ALARMS:g} % false alarms",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "calibration_error": "calibration error",
    "majority": "always the commonest class",
}


def format_percent(share: float) -> str:
    """`81.3 %`, the one notation of accuracies in texts for people."""
    return f"{100 * share:.1f} %"


def wilson(hits: float, trials: float, z: float = Z) -> tuple[float, float]:
    """Return the Wilson (1927) interval of a share; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    share = hits / trials
    widening = z * z / trials
    variance = share * (1 - share) / trials
    centre = share + widening / 2
    half = z * math.sqrt(variance + widening / (4 * trials))
    low = (centre - half) / (1 + widening)
    high = (centre + half) / (1 + widening)
    return max(0.0, low), min(1.0, high)


def one_against_rest(
    probabilities: NDArray[np.floating], labels: NDArray[np.int64]
) -> list[ScoreCounts]:
    """The scores of the second of two classes, or of each class that has records; []
    if all records belong to one class.
    """
    counts = np.bincount(labels, minlength=probabilities.shape[1])
    tested = np.flatnonzero(counts).tolist()
    if len(tested) < 2:
        return []
    if len(counts) == 2:
        tested = [1]
    return [
        ScoreCounts.of(probabilities[:, label], labels == label) for label in tested
    ]


def calibration_of(
    probabilities: NDArray[np.floating], labels: NDArray[np.int64]
) -> Calibration | None:
    """Compare the probability of the second of two classes with its share; for more
    classes, that of the predicted class with the share of right predictions. None for
    the answers of a broken network, which are not numbers.
    """
    if not np.isfinite(probabilities).all():
        return None
    if probabilities.shape[1] == 2:
        counts = ScoreCounts.of(probabilities[:, 1], labels == 1)
    else:
        right = probabilities.argmax(axis=1) == labels
        counts = ScoreCounts.of(probabilities.max(axis=1), right)
    return counts.calibration()


def _mean(values: Iterable[float | None]) -> float | None:
    """None if any value is."""
    known: list[float] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return float(np.mean(known)) if known else None


@dataclass(frozen=True)
class ClassRecall:
    """The recall of one class, with a 95 % interval."""

    records: int
    recall: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Test metrics from `table`, which counts true class (rows) by prediction
    (columns), and from probabilities, if there are any. Means skip empty classes.

    Attributes:
        table: Counts of true class by prediction.
        auc: The area under the ROC curve of the second of two classes. For more
            classes, this and the next two are means of one against the rest. None if
            all records belong to one class.
        average_precision: The mean precision over the records of the class.
        recall_at_rate: The recall at which 10 % of the other records are taken for the
            class.
        calibration: Probabilities of the second of two classes against its share, or
            of the predicted class against the share of right predictions.
    """

    table: NDArray[np.int64]
    auc: float | None = None
    average_precision: float | None = None
    recall_at_rate: float | None = None
    calibration: Calibration | None = None

    @classmethod
    def of(
        cls, probabilities: NDArray[np.floating], labels: NDArray[np.int64]
    ) -> Evaluation:
        """Evaluate predicted probabilities (N, C) against the labels of the records."""
        classes = probabilities.shape[1]
        cells = labels * classes + probabilities.argmax(axis=1)
        counts = np.bincount(cells, minlength=classes * classes)
        table = counts.reshape(classes, classes)
        scores = one_against_rest(probabilities, labels)
        return cls(
            table,
            _mean(score.auc for score in scores),
            _mean(score.average_precision for score in scores),
            _mean(score.recall_at() for score in scores),
            calibration_of(probabilities, labels),
        )

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of records of each class."""
        return np.asarray(self.table.sum(axis=1))

    @cached_property
    def tested(self) -> NDArray[np.int64]:
        """The classes that have records."""
        return np.flatnonzero(self.counts)

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.table) / self.table.sum())

    @property
    def majority(self) -> float:
        """The accuracy of always predicting the majority class, which a model must
        beat.
        """
        return float(self.counts.max() / self.table.sum())

    @cached_property
    def recalls(self) -> NDArray[np.float64]:
        """Share of each class that was recognised, NaN for one without records."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.diag(self.table) / self.counts)

    @property
    def balanced_accuracy(self) -> float:
        """The mean of the recalls. Always predicting the same class gives 1 over the
        number of classes.
        """
        return float(self.recalls[self.tested].mean())

    @property
    def macro_f1(self) -> float:
        """The mean of F1 = 2·hits / (records + predictions) over classes that occur in
        either.
        """
        total = self.counts + self.table.sum(axis=0)
        seen = total > 0
        return float((2 * np.diag(self.table)[seen] / total[seen]).mean())

    @property
    def sensitivity(self) -> float | None:
        """Recall of the second of two classes, which counts as the positive one."""
        return float(self.recalls[1]) if self._binary else None

    @property
    def specificity(self) -> float | None:
        """Recall of the first of two classes."""
        return float(self.recalls[0]) if self._binary else None

    @property
    def calibration_error(self) -> float | None:
        """The expected calibration error: the mean difference between probabilities
        and shares, in ten bins.
        """
        return None if self.calibration is None else self.calibration.error

    @property
    def _binary(self) -> bool:
        return len(self.table) == 2 and len(self.tested) == 2

    def of_class(self, label: int) -> ClassRecall:
        hits = int(self.table[label, label])
        records = int(self.counts[label])
        low, high = wilson(hits, records)
        return ClassRecall(records, float(self.recalls[label]), low, high)

    def summary(self) -> dict[str, float]:
        """Return the metrics that a round keeps, except accuracy."""
        metrics = {
            "balanced_accuracy": self.balanced_accuracy,
            "macro_f1": self.macro_f1,
            "auc": self.auc,
            "average_precision": self.average_precision,
            "recall_at_rate": self.recall_at_rate,
            "sensitivity": self.sensitivity,
            "specificity": self.specificity,
            "calibration_error": self.calibration_error,
            "majority": self.majority,
        }
        return {name: value for name, value in metrics.items() if value is not None}

    def to_dict(self, classes: Sequence[str]) -> dict[str, Any]:
        """Return the metrics for JSON, with the recall of each class."""
        per_class = {
            name: vars(self.of_class(label))
            for label, name in enumerate(classes)
            if label in self.tested
        }
        return {
            "records": int(self.table.sum()),
            "accuracy": self.accuracy,
            **self.summary(),
            "classes": per_class,
        }

    @cached_property
    def given_up(self) -> tuple[int, ...]:
        """Classes that are recognised less often than by guessing: significantly so, or
        never in a few records.
        """
        chance = 1 / max(1, len(self.tested))
        labels = []
        for label in map(int, self.tested):
            recall = self.of_class(label)
            never = recall.recall == 0 and recall.records >= FEWEST_RECORDS
            if recall.high < chance or (never and len(self.tested) > 1):
                labels.append(label)
        return tuple(labels)

    @property
    def beats_majority(self) -> bool:
        """Whether the mean recall is better than that of always predicting the same
        class.
        """
        classes = len(self.tested)
        if classes < 2:
            return True
        recalls = [self.of_class(label) for label in self.tested]
        variance = sum(
            recall.recall * (1 - recall.recall) / recall.records for recall in recalls
        )
        half_interval = Z * math.sqrt(variance) / classes
        return self.balanced_accuracy - half_interval > 1 / classes

    @property
    def collapsed(self) -> bool:
        return not self.beats_majority or bool(self.given_up)

    def collapse(self, classes: Sequence[str]) -> str:
        """Describe what is wrong with the model, "" if nothing is. `classes` are the
        names of the classes.
        """
        if not self.beats_majority:
            commonest = classes[int(self.counts.argmax())]
            return (
                f"the model does not beat always answering {commonest!r}: accuracy "
                f"{100 * self.accuracy:.1f} % against {100 * self.majority:.1f} %, "
                f"balanced accuracy {100 * self.balanced_accuracy:.1f} % against "
                f"{100 / len(self.tested):.1f} %"
            )
        if not self.given_up:
            return ""
        worst = sorted(self.given_up, key=lambda label: float(self.recalls[label]))
        names = ", ".join(
            f"{classes[label]!r} ({100 * self.recalls[label]:.0f} %)"
            for label in worst[:NAMED]
        )
        more = f" and {len(worst) - NAMED} more" if len(worst) > NAMED else ""
        return (
            f"the model gives up {len(worst)} of {len(self.tested)} classes, which it "
            f"recognises less often than by guessing: {names}{more}"
        )
