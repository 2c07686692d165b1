"""Sums over a client's features, all that a head in closed form needs to know of them: exact, like every contribution.

Σ ψ and the count of each class and, where they are asked for, the second moments Σ ψψᵀ. Nothing protects them: the sum
of a class with one record is that record's features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from fedaux.core.messages import Arrays
from fedaux.methods.contribution import FixedSum

if TYPE_CHECKING:  # PyTorch, which a method's name must not wait for
    from fedaux.data.records import Records
    from fedaux.models import HeadFeatures

SUM_BITS = 26  # 1.5e-8 a step; room for sums up to 7e10
_BLOCK = 2048  # rows at a time in double precision

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """The sums as real numbers."""

    class_sums: Matrix  # Σ ψ over the records of each class, (C, D)
    counts: Matrix  # of each class, (C,)
    moments: Matrix | None = None  # Σ ψψᵀ over all records, (D, D)

    @classmethod
    def of(cls, features: HeadFeatures, records: Records, classes: int, second: bool) -> Self:
        """Of labelled records whose rows are h0's features; `second`: with second moments."""
        import torch

        labels, width = records.labels, features.width
        class_sums, counts = np.zeros((classes, width)), np.bincount(labels, minlength=classes).astype(np.float64)
        moments = np.zeros((width, width)) if second else None
        for rows in records.blocks(_BLOCK):
            with torch.inference_mode():
                psi = features(records.batch(rows)).double().numpy()
            with np.errstate(over="ignore", invalid="ignore"):  # `FeatureSums` refuses what is not finite
                class_sums += np.eye(classes)[labels[rows]].T @ psi
                if moments is not None:
                    moments += psi.T @ psi
        return cls(class_sums, counts, moments)

    @property
    def records(self) -> float:
        return float(self.counts.sum())

    @property
    def mean(self) -> Matrix:
        """Of ψ over all records, (D,)."""
        return np.asarray(self.class_sums.sum(axis=0) / self.records)


@dataclass(frozen=True, eq=False)
class FeatureSums:
    """The same in integer steps, of any number of clients. Of symmetric `moments` the upper triangle is kept."""

    sums: dict[str, FixedSum]  # class_sums, counts and, where asked for, moments

    @classmethod
    def of(cls, moments: Moments) -> Self:
        """What is not finite or far too large raises."""
        terms = {"class_sums": moments.class_sums, "counts": moments.counts}
        if moments.moments is not None:
            terms["moments"] = moments.moments[np.triu_indices(len(moments.moments))]
        return cls({name: FixedSum.of(values, 1.0, SUM_BITS) for name, values in terms.items()})

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        return cls({name: FixedSum.from_steps(steps, SUM_BITS) for name, steps in arrays.items()})

    def to_arrays(self) -> Arrays:
        return {name: total.steps for name, total in self.sums.items()}

    def __add__(self, other: Self) -> Self:
        added = {}
        for name, total in self.sums.items():
            added[name] = FixedSum(total.steps.shape, total.bits)
            added[name].merge(total)
            added[name].merge(other.sums[name])
        return type(self)(added)

    def value(self) -> Moments:
        class_sums, counts = self.sums["class_sums"].value(), self.sums["counts"].value()
        if "moments" not in self.sums:
            return Moments(class_sums, counts)
        width = class_sums.shape[1]
        moments = np.zeros((width, width))
        moments[np.triu_indices(width)] = self.sums["moments"].value()
        return Moments(class_sums, counts, moments + np.triu(moments, 1).T)


def sums_shapes(classes: int, width: int, second: bool) -> dict[str, tuple[int, ...]]:
    """Of the arrays of `FeatureSums.to_arrays`."""
    shapes: dict[str, tuple[int, ...]] = {"class_sums": (classes, width), "counts": (classes,)}
    return {**shapes, "moments": (width * (width + 1) // 2,)} if second else shapes
