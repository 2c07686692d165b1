"""Rows of a Flower app that exists already, as its own model is called with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaux.core.errors import SettingsError
from fedaux.data.labels import factorize, name_or_nobody
from fedaux.data.records import UNDECLARED, Indices, Records, as_array


class UserRecords(Records):
    """Rows exactly as the user's model is called with them: unlike other records, they
    are neither scaled nor cast.
    """

    def batch(
        self, positions: Indices | slice = slice(None), *, view: bool = False
    ) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(self.gather(positions)))

    @classmethod
    def of(cls, x: Any, labels: Any = None, persons: Any = None) -> UserRecords:
        """Make records of arrays or tensors, one row per record. Labels other than
        whole numbers from 0 are void.
        """
        rows = as_array(x)
        if rows.dtype == np.float64:
            rows = rows.astype(np.float32)  # models are float32
        y = None if labels is None else _labels(as_array(labels))
        if len(rows) == 0 or (y is not None and y.shape != (len(rows),)):
            shape = "none" if y is None else y.shape
            raise SettingsError(
                f"{len(rows)} rows came with labels of shape {shape}: give at least "
                "one, each its label"
            )
        if persons is None:
            return cls(rows, y)
        person = as_array(persons)
        if person.shape != (len(rows),):
            raise SettingsError(
                f"{len(rows)} rows came with persons of shape {person.shape}: give "
                "each row its person"
            )
        return cls(rows, y, person=factorize(map(name_or_nobody, person.tolist())))


def _labels(values: NDArray[Any]) -> NDArray[np.int64]:
    """Convert each label by itself, since a single missing one turns the whole array
    into floats or objects.
    """
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    return np.array([_label(value) for value in values.tolist()], dtype=np.int64)


def _label(value: Any) -> int:
    if isinstance(value, (int, float)) and 0 <= value < 2**53 and value == int(value):
        return int(value)
    return UNDECLARED
