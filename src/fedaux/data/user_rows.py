"""Rows of a Flower app that exists already, as its own model is called with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from fedaux.core.errors import SettingsError
from fedaux.data.adapters import LABELS
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
    def of_data(cls, data: Any) -> UserRecords:
        """Make records of what the training of an app reads: (x, labels) or (x, labels,
        persons), a `Dataset`, or a `DataLoader`.

        Of a loader, each item of its dataset is read once, in order, and passes its
        `collate_fn` alone.
        """
        if isinstance(data, DataLoader):
            _check_sampler(data)
            return cls.of(*_columns_of(data.dataset, data.collate_fn))
        if isinstance(data, Dataset) or hasattr(data, "column_names"):
            return cls.of(*_columns_of(data, default_collate))
        if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
            what = type(data).__name__
            if isinstance(data, (tuple, list)):
                what = f"{len(data)} things"
            raise SettingsError(
                f"Cannot read {what} as records: their form is not known. Return (x, "
                "labels), (x, labels, people), a Dataset or a DataLoader."
            )
        loaders = [part for part in data if isinstance(part, (DataLoader, Dataset))]
        if loaders:
            raise SettingsError(
                f"Cannot choose among {len(data)} data sets: only one can be trained "
                "on. Return the one that this client trains on, and leave test data "
                "out."
            )
        return cls.of(*data)

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
                f"Cannot read the rows: {len(rows)} rows came with labels of shape "
                f"{shape}. Give at least one, each its label."
            )
        if persons is None:
            return cls(rows, y)
        person = as_array(persons)
        if person.shape != (len(rows),):
            raise SettingsError(
                f"Cannot read the rows: {len(rows)} rows came with persons of shape "
                f"{person.shape}. Give each row its person."
            )
        return cls(rows, y, person=factorize(map(name_or_nobody, person.tolist())))


def _check_sampler(loader: DataLoader[Any]) -> None:
    """Raise an error unless the loader shows each record exactly once in an epoch."""
    sampler = loader.sampler
    once = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source)
    )
    if isinstance(loader.dataset, IterableDataset) or not once:
        raise SettingsError(
            f"Cannot read a DataLoader with a {type(sampler).__name__}: it may not "
            "give each record exactly once. Return a Dataset of the client's own "
            "records."
        )


def _columns_of(dataset: Any, collate: Callable[[list[Any]], Any]) -> Iterator[Any]:
    """Yield the rows and the labels of a dataset, each item read separately."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise SettingsError(
            f"Cannot read a {type(dataset).__name__} item by item: it has no length or "
            "no items. Return a Dataset with __len__ and __getitem__."
        )
    pairs = [_pair(collate([dataset[index]])) for index in range(len(dataset))]
    if not pairs:
        raise SettingsError(
            "Cannot make a release of an empty Dataset: it has no rows. Return at "
            "least one."
        )
    yield np.concatenate([row for row, _ in pairs])
    yield np.concatenate([label for _, label in pairs])


def _pair(batch: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (row, label) of a batch with one record."""
    if isinstance(batch, Mapping):
        names = [name for name in LABELS if name in batch]
        rows = [name for name in batch if name not in names]
        if not names or len(rows) != 1:
            raise SettingsError(
                f"Cannot tell rows and labels among {', '.join(map(str, batch))}: "
                "their names do not show it. Return (x, labels) from `data`."
            )
        batch = (batch[rows[0]], batch[names[0]])
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise SettingsError(
            "Cannot read items other than (row, label): labels would be unknown. "
            "Return (x, labels) from `data`."
        )
    row, label = batch
    return as_array(row), as_array(label).reshape(-1)


def _labels(values: NDArray[Any]) -> NDArray[np.int64]:
    """Convert each label separately, since a single missing one turns the whole array
    into floats or objects.
    """
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    return np.array([_label(value) for value in values.tolist()], dtype=np.int64)


def _label(value: Any) -> int:
    if isinstance(value, (int, float)) and 0 <= value < 2**53 and value == int(value):
        return int(value)
    return UNDECLARED
