"""Figures of a score that says how likely an event is, such as the probability of the
second of two classes.

All of them are made of counts: how many records have each score, with the event and
without it. Counts in bins, also noisy ones, give the same figures, as if all records of
a bin had its middle as their score.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS = 10  # of equal width from 0 to 1, in which calibration is measured
FALSE_ALARMS = 0.1  # share of records without the event at which recall is measured

_Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores against shares, in those of `BINS` that have records."""

    records: _Numbers
    predicted: _Numbers  # mean score
    observed: _Numbers  # share of records with the event

    def to_rows(self) -> list[list[float]]:
        """[records, predicted, observed] of each bin."""
        columns = (self.records, self.predicted, self.observed)
        rows: list[list[float]] = np.stack(columns, axis=1).tolist()
        return rows

    @classmethod
    def from_rows(cls, rows: ArrayLike) -> Calibration:
        records, predicted, observed = np.asarray(rows, dtype=np.float64).T
        return cls(records, predicted, observed)

    @property
    def error(self) -> float:
        """The expected calibration error: the mean difference of score and share."""
        difference = np.abs(self.predicted - self.observed)
        return float(np.average(difference, weights=self.records))


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """How many records have each score.

    Figures that no records define are None, such as the recall without an event.

    Attributes:
        scores: All scores that occur, increasing.
        positives: At each score the records with the event; fractions are allowed.
        negatives: At each score the records without it.
    """

    scores: _Numbers
    positives: _Numbers
    negatives: _Numbers

    @classmethod
    def of(
        cls, scores: NDArray[np.floating], positive: NDArray[np.bool_]
    ) -> ScoreCounts:
        """Count the records of each score, by whether the event occurred."""
        order = np.argsort(scores)
        ordered = scores[order]
        first = np.ones(len(ordered), dtype=np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        starts = np.flatnonzero(first)
        ends = np.append(starts[1:], len(ordered))
        occurred = np.append(0, np.cumsum(positive[order]))
        positives = (occurred[ends] - occurred[starts]).astype(np.float64)
        return cls(
            ordered[starts].astype(np.float64), positives, ends - starts - positives
        )

    @classmethod
    def of_bins(
        cls, edges: ArrayLike, positives: ArrayLike, negatives: ArrayLike
    ) -> ScoreCounts:
        """Take counts between `edges`, one more than there are counts. Noise may have
        made counts negative, which then are 0.
        """
        bounds = np.asarray(edges, dtype=np.float64)
        middles = (bounds[:-1] + bounds[1:]) / 2
        return cls(
            middles,
            np.maximum(np.asarray(positives, dtype=np.float64), 0.0),
            np.maximum(np.asarray(negatives, dtype=np.float64), 0.0),
        )

    @cached_property
    def _totals(self) -> tuple[float, float]:
        """Records with and without the event."""
        return float(self.positives.sum()), float(self.negatives.sum())

    @cached_property
    def _above(self) -> tuple[_Numbers, _Numbers]:
        """Records with and without the event at each score or above, from the largest
        score down: what is found, and raised in vain, at each threshold.
        """
        return np.cumsum(self.positives[::-1]), np.cumsum(self.negatives[::-1])

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve: P(an event scores higher than none) +
        P(equal)/2.
        """
        events, others = self._totals
        if not events or not others:
            return None
        below = np.cumsum(self.negatives) - self.negatives / 2
        return float((self.positives * below).sum() / (events * others))

    @property
    def average_precision(self) -> float | None:
        """The mean precision over all events, each at the threshold of its score."""
        events, _ = self._totals
        if not events:
            return None
        found, vain = self._above
        raised = found + vain
        precision = np.divide(found, raised, out=np.zeros_like(found), where=raised > 0)
        return float((self.positives[::-1] * precision).sum() / events)

    def recall_at(self, rate: float = FALSE_ALARMS) -> float | None:
        """The largest recall of a threshold that takes at most this share of the other
        records for events.
        """
        events, others = self._totals
        if not events or not others:
            return None
        found, vain = self._above
        allowed = found[vain / others <= rate]
        return float(allowed[-1] / events) if len(allowed) else 0.0

    def calibration(self, bins: int = BINS) -> Calibration:
        """Compare scores from 0 to 1 with the shares of events, in bins of equal
        width.
        """
        inner = np.linspace(0.0, 1.0, bins + 1)[1:-1]
        place = np.searchsorted(inner, self.scores)
        counts = self.positives + self.negatives
        records = np.bincount(place, counts, bins).astype(np.float64)
        sums = np.bincount(place, counts * self.scores, bins)
        events = np.bincount(place, self.positives, bins)
        filled = records > 0
        return Calibration(
            records[filled],
            sums[filled] / records[filled],
            events[filled] / records[filled],
        )

    @property
    def calibration_error(self) -> float | None:
        """The expected calibration error of scores from 0 to 1."""
        if not sum(self._totals):
            return None
        return self.calibration().error
