"""Label-free measures against naive versions and known cases."""

import numpy as np
import pytest
import torch

from fedaux.pretraining.metrics import feature_quality


def test_against_naive_loops() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    one, two = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second))
    found = feature_quality(torch.tensor(first), torch.tensor(second))
    assert found.alignment == pytest.approx(np.mean([np.sum((a - b) ** 2) for a, b in zip(one, two, strict=True)]))
    pairs = [np.exp(-2 * np.sum((one[i] - one[j]) ** 2)) for i in range(9) for j in range(i)]
    assert found.uniformity == pytest.approx(np.log(np.mean(pairs)))


def test_known_cases() -> None:
    same = torch.ones(8, 3)
    assert feature_quality(same, same).alignment == pytest.approx(0.0)
    assert feature_quality(same, same).uniformity == pytest.approx(0.0)
    rows = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0))
    assert feature_quality(rows, rows).rank == pytest.approx(5.0, abs=0.05)
    flat = rows * torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])
    assert feature_quality(flat, flat).rank == pytest.approx(2.0, abs=0.05)
