"""Records: rows of x with optional labels, as lazy views of arrays that may be memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]

UNDECLARED = -1  # the label of a record whose label is missing or not a declared class


@dataclass(frozen=True, eq=False)
class Records:
    """Rows `x[rows]` with labels `y[rows]`; `x` may be a memory map far larger than memory.

    Images are uint8 (N, H, W, C); numbers are float (N, ...); text is an array of `str`. `person` is the id of the
    person each row belongs to, if the source knows it.
    """

    x: NDArray[Any]
    y: NDArray[np.int64] | None = None
    rows: Indices | None = None
    person: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.x) if self.rows is None else len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as a model input: images are channels first."""
        shape = tuple(self.x.shape[1:])
        return (shape[2], shape[0], shape[1]) if is_image(self.x) else shape

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each record, from 0 on, or `UNDECLARED`; an error if there are no labels."""
        if self.y is None:
            raise ValueError("these records have no labels; private and test data need them, auxiliary data does not")
        return self.y if self.rows is None else self.y[self.rows]

    @property
    def persons(self) -> NDArray[np.int64]:
        """The person's id of each record; an error if the source does not know it."""
        if self.person is None:
            raise ValueError("these records have no persons; set data.person")
        return self.person if self.rows is None else self.person[self.rows]

    def take(self, positions: Indices) -> Records:
        """A view of the records at `positions`."""
        return replace(self, rows=positions if self.rows is None else self.rows[positions])

    def unlabelled(self) -> Records:
        """A view without labels."""
        return replace(self, y=None)

    def gather(self, positions: Indices | slice = slice(None)) -> NDArray[Any]:
        """A copy of the rows in memory."""
        if self.rows is not None:
            return np.asarray(self.x[self.rows[positions]])
        picked = self.x[positions]
        return np.array(picked) if isinstance(positions, slice) else np.asarray(picked)  # a slice is a view

    def tensor(self, positions: Indices | slice = slice(None)) -> Tensor:
        """The rows as a float32 model input (see `to_tensor`)."""
        return to_tensor(self.gather(positions))

    def batch(self, positions: Indices | slice = slice(None), *, view: bool = False) -> Any:
        """The rows as a model input: a tensor, or for text the strings, which the prototype tokenises.

        `view` spares a copy of rows that are in memory, for a model that leaves its input alone.
        """
        if self.rows is None and self.x.flags.writeable and (view or is_image(self.x)):  # `to_tensor` copies images
            return to_tensor(self.x[positions])
        rows = self.gather(positions)
        return rows if is_text(rows) else to_tensor(rows)

    def blocks(self, size: int) -> Iterator[slice]:
        """Consecutive slices of at most `size` rows that cover all records."""
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))


def is_image(x: NDArray[Any]) -> bool:
    return x.dtype == np.uint8 and x.ndim == 4


def is_text(x: NDArray[Any]) -> bool:
    return x.dtype.kind in "OUT"


def to_tensor(x: NDArray[Any]) -> Tensor:
    """uint8 images (B, H, W, C) → float32 (B, C, H, W), scaled by constants; numbers are only cast to float32.

    Constants, because statistics of private data would be another release to account for.
    """
    if is_image(x):
        return torch.from_numpy(np.ascontiguousarray(x)).permute(0, 3, 1, 2).float().sub_(127.5).div_(63.75)
    with np.errstate(over="ignore"):  # a number beyond float32 is infinite
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


@dataclass(frozen=True, eq=False)
class Corpus:
    """The data of one source. Without `test`, part of `train` is held out; auxiliary data needs no labels.

    `classes` are the names of labels 0, 1, …; without them the numbers are the names.
    """

    train: Records
    test: Records | None = None
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what a person should know: images that could not be read, …
    site: NDArray[np.int64] | None = None  # the client of each training record, for data.partition = "given"
