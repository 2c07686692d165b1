"""What every source gives and everything else reads: rows of x, perhaps labels, not copied before they are used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]

UNDECLARED = -1  # the label of a record whose own is missing, or none of the declared classes


@dataclass(frozen=True, eq=False)
class Records:
    """Rows `x[rows]` with labels `y[rows]`; `x` may be a memory map far larger than memory.

    Images are uint8 (N, H, W, C); numbers are float (N, ...); text is an array of `str`. `person` numbers the people
    behind the rows, where the source knows them.
    """

    x: NDArray[Any]
    y: NDArray[np.int64] | None = None
    rows: Indices | None = None
    person: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.x) if self.rows is None else len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as a model sees it: images are channels first."""
        shape = tuple(self.x.shape[1:])
        return (shape[2], shape[0], shape[1]) if is_image(self.x) else shape

    @property
    def labels(self) -> NDArray[np.int64]:
        """One integer from 0 on for each record, or `UNDECLARED`; an error where there are none."""
        if self.y is None:
            raise ValueError("these records have no labels; private and test data need them, auxiliary data does not")
        return self.y if self.rows is None else self.y[self.rows]

    @property
    def persons(self) -> NDArray[np.int64]:
        """Whose each record is, as a number; an error where the source does not know."""
        if self.person is None:
            raise ValueError("it is not known whose these records are; name data.person")
        return self.person if self.rows is None else self.person[self.rows]

    def take(self, positions: Indices) -> Records:
        """The records at `positions`, still a view: only an index is stored."""
        return replace(self, rows=positions if self.rows is None else self.rows[positions])

    def unlabelled(self) -> Records:
        """The same rows without their labels: what auxiliary data is to everybody."""
        return replace(self, y=None)

    def gather(self, positions: Indices | slice = slice(None)) -> NDArray[Any]:
        """The rows themselves, copied into memory."""
        if self.rows is not None:
            return np.asarray(self.x[self.rows[positions]])
        picked = self.x[positions]
        return np.array(picked) if isinstance(positions, slice) else np.asarray(picked)  # a slice is no copy yet

    def tensor(self, positions: Indices | slice = slice(None)) -> Tensor:
        """The rows as a model sees them (float32, see `to_tensor`)."""
        return to_tensor(self.gather(positions))

    def batch(self, positions: Indices | slice = slice(None)) -> Any:
        """What a model is called with: a tensor, or for text the strings themselves, which its prototype tokenises."""
        rows = self.gather(positions)
        return rows if is_text(rows) else to_tensor(rows)

    def blocks(self, size: int) -> Iterator[slice]:
        """Consecutive slices that cover all records, so that a pass never holds more than `size` rows."""
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))


def is_image(x: NDArray[Any]) -> bool:
    return x.dtype == np.uint8 and x.ndim == 4


def is_text(x: NDArray[Any]) -> bool:
    return x.dtype.kind in "OUT"


def to_tensor(x: NDArray[Any]) -> Tensor:
    """uint8 images (B, H, W, C) become float32 (B, C, H, W) scaled by the same constants for everyone; numbers stay.

    Constants, not statistics: a mean over private data would be one more release to account for.
    """
    if is_image(x):
        return torch.from_numpy(np.ascontiguousarray(x)).permute(0, 3, 1, 2).float().sub_(127.5).div_(63.75)
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


@dataclass(frozen=True, eq=False)
class Corpus:
    """What one source holds. Without `test`, a share of `train` is held out; auxiliary data needs no labels.

    `classes` are the names of labels 0, 1, …; without them the labels' numbers are their names.
    """

    train: Records
    test: Records | None = None
    classes: tuple[str, ...] = ()
