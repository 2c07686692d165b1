"""Shuffled mini-batches of record positions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray


def batch_starts(size: int, batch_size: int) -> range:
    """Where the batches of an epoch start.

    A last batch of a single row is merged into the one before: BatchNorm cannot train on it.
    """
    return range(0, max(1, size - 1 if batch_size > 1 else size), batch_size)


def shuffled(size: int, generator: torch.Generator) -> NDArray[np.int64]:
    """Positions in the order of an epoch."""
    order: NDArray[np.int64] = torch.randperm(size, generator=generator).numpy()
    return order


def batches(size: int, batch_size: int, generator: torch.Generator) -> Iterator[NDArray[np.int64]]:
    """One shuffled epoch."""
    order = shuffled(size, generator)
    for start, stop in pairwise([*batch_starts(size, batch_size), size]):
        yield order[start:stop]
