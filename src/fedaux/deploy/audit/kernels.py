"""Vectors on which a matrix product's last bit, and so its sign, depends on how many rows there are.

A search finds them, as a hostile server could at home: h·w is zero but for rounding, and kernels choose the order of
their sums by the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Product = Callable[[Floats, Floats, int], NDArray[Any]]  # (h, w, n) → h·w, n times over, by a kernel for n rows
TRIES = 500


def cancelling_pairs(width: int) -> Iterator[tuple[Floats, Floats]]:
    """(h > 0, w) whose product cancels in pairs."""
    rng = np.random.default_rng(1)
    for _ in range(TRIES):
        half = np.abs(rng.normal(size=width // 2)).astype(np.float32)
        signs, order = rng.normal(size=width // 2).astype(np.float32), rng.permutation(width)
        yield np.concatenate([half, half])[order], np.concatenate([signs, -signs])[order]


def find_shape_dependent(product: Product, width: int, rows: int) -> tuple[Floats, Floats, float, float] | None:
    """(h, w, h·w among `rows`, h·w among one more) with products of different signs; None if no try gives such."""
    for h, weights in cancelling_pairs(width):
        small, large = product(h, weights, rows), product(h, weights, rows + 1)
        uniform = small.min() == small.max() and large.min() == large.max()
        if uniform and small[0] * large[0] < 0:
            return h, weights, float(small[0]), float(large[0])
    return None
