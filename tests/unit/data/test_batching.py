"""Shuffled mini-batches."""

import numpy as np
import pytest
import torch

from fedaux.data.batching import batch_starts, batches


@pytest.mark.parametrize(("size", "batch"), [(10, 3), (9, 4), (5, 5), (1, 4), (33, 32), (64, 32), (3, 1)])
def test_batches_cover_everything_once_and_none_has_one_row(size: int, batch: int) -> None:
    epoch = list(batches(size, batch, torch.Generator().manual_seed(0)))
    assert sorted(np.concatenate(epoch)) == list(range(size))
    assert size == 1 or batch == 1 or min(map(len, epoch)) > 1
    assert len(epoch) == len(batch_starts(size, batch))
    assert all(len(rows) == batch for rows in epoch[:-1])


def test_a_single_last_row_joins_the_batch_before() -> None:
    assert list(batch_starts(33, 32)) == [0]
    assert list(batch_starts(34, 32)) == [0, 32]
    assert list(batch_starts(3, 1)) == [0, 1, 2]
