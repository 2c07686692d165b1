"""Memory and time of a network, measured without training it."""

import numpy as np
import torch
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import build, flatten_state
from fedaux.models.footprint import Footprint, available_memory, measure
from fedaux.models.registry import Prototype
from helpers.tiny import CNN


class Two(nn.Module):
    width = 5

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 7), nn.Linear(7, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def test_parameters_and_activations_are_counted() -> None:
    found = measure(Prototype(Two(), 4), Records(np.zeros((10, 3), np.float32)))
    assert found.parameters == (3 * 7 + 7) + (7 * 5 + 5) + (5 * 4 + 4)
    assert found.activations == 4 * (7 + 5 + 4)
    assert found.sent == 4 * found.parameters
    assert 0 < found.forward < found.step


def test_nothing_is_trained() -> None:
    network = build(CNN, (1, 8, 8), 10, 0)
    before = {name: array.copy() for name, array in flatten_state(build(CNN, (1, 8, 8), 10, 0)).items()}
    measure(network, Records(np.zeros((20, 8, 8, 1), np.uint8)))
    assert not network.training
    assert all(parameter.grad is None for parameter in network.parameters())
    assert np.array_equal(flatten_state(network)["parameters"], before["parameters"])


def test_memory_grows_with_the_batch_and_the_size_of_images() -> None:
    small, large = (
        measure(
            build(PrototypeSpec("resnet8", (("width", 16),)), (3, size, size), 10, 0),
            Records(np.zeros((4, size, size, 3), np.uint8)),
        )
        for size in (32, 64)
    )
    assert large.activations > 3.5 * small.activations
    assert large.training_memory(200) - large.training_memory(100) == 100 * large.activations
    fits = large.largest_batch(1e9)
    assert large.training_memory(fits) <= 1e9 < large.training_memory(fits + 1)
    assert Footprint(10**9, 4, 10, 0.1, 0.1).largest_batch(1e9) == 0


def test_some_memory_is_free() -> None:
    assert 10**7 < available_memory() < 10**14
