"""Class sums, counts and second moments of φ under one noise, for the class moments, or
one signed sum for two classes.

What the server makes of them is in `scoring.second_moments`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedaux.client.summaries.embedding import embed_per_record
from fedaux.core.arrays import Arrays, Vector
from fedaux.privacy.mechanism import GRID, Summary, quantize
from fedaux.scoring.base import Features, Labels, Shares
from fedaux.scoring.class_moments import ROW_STEPS, SHARE_STEPS, ClassMomentsScorer
from fedaux.scoring.second_moments import (
    exact_split,
    is_signed,
    second_size,
    triangle,
)

_ENTRIES = 2**19  # of rows at a time, which stay in the processor's cache


def moment_rows(embedded: Vector, split: Vector) -> Vector:
    """(N, k) → (N, k + 1 + k(k + 1)/2): what each record adds, its own class's slots
    first. All is elementwise.

    Without second moments, m = 0, there are k + 1 slots; of a signed sum 2k + 1, of which
    the first k + 1 have the sign of the class.
    """
    a, b = split[:2]
    first = np.concatenate([a * embedded, np.full((len(embedded), 1), b)], axis=1)
    if is_signed(split):
        return np.concatenate([first, b * embedded], axis=1)
    m = split[2]
    if m == 0:
        return first
    row, column, weight = triangle(embedded.shape[1])
    return np.concatenate(
        [first, (m * weight) * (embedded[:, row] * embedded[:, column])], axis=1
    )


def class_moments(
    scorer: ClassMomentsScorer,
    public: Arrays,
    features: Features,
    labels: Labels,
    adjacency: str,
    size: int,
    shares: Shares,
) -> Summary:
    """Sum the rows v of `moment_rows` in integers.

    A row is rounded towards zero in steps of 1/ROW_STEPS and then multiplied by its
    share in whole steps of 1/SHARE_STEPS, so a unit adds a convex combination of whole
    rows, times SHARE_STEPS: `scoring.second_moments.sensitivity` holds for it as it does
    for rows. In a signed sum, class 0 has the opposite sign.
    """
    split = exact_split(public)
    labels = np.asarray(labels)
    k = public["basis"].shape[1]
    weights = np.floor(np.asarray(shares, np.float64) * SHARE_STEPS).astype(np.int64)
    is_counted = (labels >= 0) & (labels < scorer.classes) & (weights > 0)
    signed = is_signed(split)
    slots = np.zeros_like(labels) if signed else labels
    signs = np.where(signed & (labels == 0), -1, 1)
    first = np.zeros((1 if signed else scorer.classes, k + 1), np.int64)
    second = np.zeros(second_size(k, split), np.int64)  # or the plain sum of φ
    width = first.shape[1] + len(second)
    for block in _blocks(np.flatnonzero(is_counted), width):
        rows = moment_rows(embed_per_record(public, features[block]), split)
        steps = quantize(rows, ROW_STEPS / GRID) * weights[block, None]
        np.add.at(first, slots[block], steps[:, : k + 1] * signs[block, None])
        second += steps[:, k + 1 :].sum(axis=0)
    bound = scorer.bound(public, adjacency, size)
    values = np.concatenate([first.ravel(), second])
    return Summary(values, bound.step, bound.sensitivity, adjacency, size)


def _blocks(rows: NDArray[np.intp], width: int) -> Iterator[NDArray[np.intp]]:
    length = max(1, _ENTRIES // width)
    yield from (rows[start : start + length] for start in range(0, len(rows), length))
