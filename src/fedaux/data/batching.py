"""Shuffled mini-batches of record positions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray


def batches(size: int, batch_size: int, generator: torch.Generator) -> Iterator[NDArray[np.int64]]:
    """One shuffled epoch. A last batch of a single row is merged into the one before: BatchNorm cannot train on it."""
    order = torch.randperm(size, generator=generator).numpy()
    cuts = list(range(batch_size, size, batch_size))
    if batch_size > 1 and cuts and size - cuts[-1] == 1:
        cuts.pop()
    yield from np.split(order, cuts)
