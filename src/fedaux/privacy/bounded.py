"""Rows of norm at most 1, in exact integers: the one fact that every proof of sensitivity here rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

REACH = {"replace-one": 2, "add-remove": 1}  # how many records a neighbour differs in, counted as vectors of norm 1
GRID = 2**20  # steps per unit: summaries are integers, `values / GRID` their meaning


def clip_rows(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Each row by itself: shortened to norm 1 where longer; zero where not finite."""
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"one row per record was expected, not an array of shape {rows.shape}")
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), 1.0)
    scaled = rows / largest  # squares of huge entries would overflow; a row within the ball is divided by 1 and stays
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.maximum(norms, 1.0 / largest))


def to_steps(clipped: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rows of norm at most 1 as integers of norm at most GRID. Rounding is towards zero, so no row leaves the ball."""
    steps = np.trunc(clipped * (GRID - 1)).astype(np.int64)  # GRID − 1: room for the last bit of the clipping division
    if (np.square(steps).sum(axis=1) > GRID**2).any():
        raise AssertionError("a clipped row left the unit ball; nothing is released")
    return steps
