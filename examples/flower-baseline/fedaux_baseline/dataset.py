"""Scikit-learn's digits, split with Dirichlet's distribution, behind the two methods of
`flwr_datasets.FederatedDataset` that a baseline needs.

To use a dataset of Flower Datasets, return a `FederatedDataset` with a
`DirichletPartitioner` from `federated_dataset`.
"""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

ALPHA = 0.1
SEED = 0
PRIVATE, PUBLIC = 1200, 300
"""Images of the clients, and public images whose labels are not used. The other 297
are for the test."""


class LocalFederatedDataset:
    """Columns `image` and `label`, by the methods of `FederatedDataset`."""

    def __init__(self, partitions: int, alpha: float = ALPHA, seed: int = SEED) -> None:
        x, y = load_digits(return_X_y=True)
        random = np.random.default_rng(seed)
        order = random.permutation(len(x))
        self._x = (x[order] / 8 - 1).astype(np.float32)
        self._y = y[order]
        parts: list[list[int]] = [[] for _ in range(partitions)]
        for label in range(10):
            rows = np.flatnonzero(self._y[:PRIVATE] == label)
            shares = random.dirichlet(np.full(partitions, alpha))
            ends = (np.cumsum(shares) * len(rows)).round().astype(int)[:-1]
            for part, chosen in zip(parts, np.split(rows, ends), strict=True):
                part.extend(chosen)
        # a client without a record gets one of the largest
        for part in parts:
            if not part:
                part.append(max(parts, key=len).pop())
        self._parts = [np.sort(part) for part in parts]

    def load_partition(self, partition_id: int) -> dict[str, Tensor]:
        return self._rows(self._parts[partition_id])

    def load_split(self, split: str) -> dict[str, Tensor]:
        ends = {"public": (PRIVATE, PRIVATE + PUBLIC), "test": (PRIVATE + PUBLIC, None)}
        first, last = ends[split]
        return self._rows(np.arange(len(self._x))[first:last])

    def _rows(self, rows: np.ndarray) -> dict[str, Tensor]:
        return {
            "image": torch.tensor(self._x[rows]),
            "label": torch.tensor(self._y[rows]),
        }


@cache
def federated_dataset(partitions: int) -> LocalFederatedDataset:
    return LocalFederatedDataset(partitions)
