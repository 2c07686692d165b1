"""The small networks: rows of any size, and they learn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import build


def rows(count: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp", (13,)),
        ("mlp", (1, 8, 8)),
        ("mlp", (1, 28, 28)),
        ("cnn", (1, 8, 8)),
        ("cnn", (1, 28, 28)),
        ("cnn", (1, 1, 1)),
    ],
)
def test_small_networks_take_small_rows(name: str, shape: tuple[int, ...]) -> None:
    model = build(PrototypeSpec.of(name, features=20), shape, 3, seed=0)
    assert model.features(rows(4, shape)).shape == (4, 20)
    assert model(rows(4, shape)).shape == (4, 3)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_small_networks_learn_in_a_few_steps(name: str) -> None:
    model = build(PrototypeSpec(name), (1, 8, 8), 4, seed=0)
    x, y = rows(64, (1, 8, 8)), torch.arange(64) % 4
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1
