"""Shuffled mini-batches."""

import numpy as np
import pytest
import torch

from fedaux.data.batching import batches


@pytest.mark.parametrize(("size", "batch"), [(10, 3), (9, 4), (5, 5), (1, 4), (33, 32), (64, 32)])
def test_batches_cover_everything_once_and_none_has_one_row(size: int, batch: int) -> None:
    found = list(batches(size, batch, torch.Generator().manual_seed(0)))
    assert sorted(np.concatenate(found)) == list(range(size))
    assert size == 1 or min(map(len, found)) > 1
