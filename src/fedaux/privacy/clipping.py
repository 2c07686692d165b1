"""Clipping to norm 1 and quantisation to exact integers, on which every proof of sensitivity rests.

A row's integers are, to the bit, a function of that row. Every operation below is elementwise and rounded as IEEE 754
says (+, ×, ÷, √, rint), a maximum, which is exact in any order, or `_row_sums`, whose order depends on the width alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.core.messages import Arrays

UNIT_SENSITIVITY = {"replace-one": 2, "add-remove": 1}  # ℓ₂, of a sum of vectors of norm at most 1, one per record
GRID = 2**30  # steps per unit: a quantised vector means `values / GRID`; squares fit 63 bits


@dataclass(frozen=True)
class Bound:
    """What holds for every honest summary of a data set of given size, whatever its records; norms are in steps."""

    norm: float  # ℓ₂, before the noise
    step: float
    sensitivity: float


Bounds = Callable[[Arrays, str, int], Bound]  # (the scorer's public arrays, adjacency, public |D_i|)


def clip_rows(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Each row by itself: scaled to norm 1 where longer; zero where not finite."""
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"one row per record was expected, not an array of shape {rows.shape}")
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), 1.0)
    scaled = rows / largest  # squares of huge entries would overflow; a row within the ball is divided by 1 and stays
    norms = np.sqrt(_row_sums(np.square(scaled)))
    return np.asarray(scaled / np.maximum(norms, 1.0 / largest))


def unit_rows(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Each row by itself: normalised to norm 1; zero where it is zero or not finite.

    The noise is calibrated to the longest possible row, so every row should be as long as that.
    """
    rows = np.asarray(rows, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0) if rows.ndim == 2 else np.ones(1)
    usable = np.isfinite(largest) & (largest > 0)
    scaled = np.where(usable, rows / np.where(usable, largest, 1.0), 0.0)  # squares of huge entries would overflow
    return clip_rows(scaled)  # the largest entry is 1, so no row has norm below 1


def quantize(clipped: NDArray[np.float64], shares: float | NDArray[np.float64] = 1.0) -> NDArray[np.int64]:
    """Rows of norm at most 1 as integers of norm at most `max_norm(shares)`, which is GRID for a share of 1.

    Rounding is towards zero, so no row leaves its ball.
    """
    limit = np.broadcast_to(max_norm(shares), len(clipped))
    scale = np.maximum(limit - 1, 0)[:, None]  # one step less: a margin for the last bit of the clipping division
    steps = np.trunc(clipped * scale).astype(np.int64)
    if (np.square(steps).sum(axis=1) > np.square(limit)).any():
        raise AssertionError("a clipped row left the unit ball; nothing is released")
    return steps


def max_norm(shares: float | NDArray[np.float64]) -> NDArray[np.int64]:
    """The norm allowed to a record of this share, in steps: ⌊share·GRID⌋, so that shares of 1/m add up to at most GRID.

    GRID is a power of two and the product exact; 1/m is rounded by 2⁻⁵³ of itself, and GRID/m is an integer or at least
    1/m away from one, so the rounding never lifts it to the next.
    """
    return np.asarray(np.floor(np.asarray(shares, np.float64) * GRID), np.int64)


def _row_sums(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ over each row, (N, 1), by adding the right half of the columns to the left half until one column remains.

    These are log₂(width) elementwise additions, the same ones for every row and any number of rows.
    """
    sums = rows.copy()
    while (width := sums.shape[1]) > 1:
        half = width // 2
        sums[:, :half] += sums[:, width - half :]
        sums = sums[:, : width - half]
    return sums if sums.shape[1] else np.zeros((len(rows), 1))
