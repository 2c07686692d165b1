"""Forward passes change nothing and do not depend on their blocks."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import HeadFeatures, build, flatten_state, linear_head
from fedaux.models.inference import (
    DEFAULT_BLOCK,
    MAX_BLOCK,
    MIN_BLOCK,
    Footprint,
    block_rows,
    measure,
    predict,
    predict_batches,
    transform_rows,
)
from fedaux.models.registry import Prototype
from helpers.tiny import CNN


def test_looking_changes_nothing_and_rows_do_not_matter_to_each_other() -> None:
    network, records = (
        build(
            PrototypeSpec.of("mlp", hidden=16, features=8, norm="batch"),
            (4,),
            3,
            seed=0,
        ),
        numbers(20),
    )
    network(records.tensor())  # BatchNorm has seen something
    before = flatten_state(network)
    together = np.concatenate(
        [out for _, out in predict_batches(network, records, block=20)]
    )
    alone = np.concatenate(
        [out for _, out in predict_batches(network, records, block=1)]
    )
    assert np.allclose(together, alone, atol=1e-5)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(before.values(), flatten_state(network).values(), strict=True)
    )


def numbers(count: int = 1100) -> Records:
    return Records(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32))


def test_outputs_are_the_modules_own_block_by_block() -> None:
    rows, module = numbers(), nn.Linear(4, 3)
    with torch.no_grad():
        naive = module(rows.tensor()).numpy()
    assert np.allclose(predict(module, rows), naive, atol=1e-6)
    assert np.array_equal(
        transform_rows(Records(naive), lambda block: block[:, :2] * 2, size=100),
        2 * naive[:, :2],
    )


def test_a_block_is_smaller_for_larger_rows_and_activations() -> None:
    def block(module: nn.Module, width: int) -> int:
        return block_rows(module, Records(np.zeros((3, width), np.float32)))

    assert [block(nn.Identity(), width) for width in (4, 512, 4096, 10**6)] == [
        MAX_BLOCK,
        512,
        64,
        MIN_BLOCK,
    ]
    # 128 KiB a row in between
    wide = nn.Sequential(nn.Linear(4, 2**15), nn.Linear(2**15, 2))
    assert block(wide, 4) == 64
    assert not any(module._forward_hooks for module in wide.modules())
    assert (
        block_rows(nn.Identity(), Records(np.array(["a text"], dtype=object)))
        == DEFAULT_BLOCK
    )


@pytest.mark.parametrize("random", [0, 7])
def test_a_head_on_standardised_features_predicts_as_it_is_trained(random: int) -> None:
    """Predictions fold the standardisation into the head."""
    rng = np.random.default_rng(0)
    records, head = (
        Records(rng.normal(3, 2, (50, 4)).astype(np.float32)),
        linear_head(4, 3, random),
    )
    features = cast(HeadFeatures, head.features)
    features.standardise(
        {
            "mean": np.full(4, 3, np.float32),
            "deviation": np.array([2, 0.5, 1, 4], np.float32),
        }
    )
    state = torch.random.get_rng_state()
    found = predict(head, records)
    assert torch.equal(state, torch.random.get_rng_state())  # nothing was drawn
    assert np.allclose(found, head(records.tensor()).detach().numpy(), atol=1e-5)
    features.standardise({})
    assert np.allclose(
        predict(head, records), head(records.tensor()).detach().numpy(), atol=1e-6
    )
    assert not np.allclose(predict(head, records), found, atol=1e-2)


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
    before = {
        name: array.copy()
        for name, array in flatten_state(build(CNN, (1, 8, 8), 10, 0)).items()
    }
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
    assert (
        large.training_memory(200) - large.training_memory(100)
        == 100 * large.activations
    )
    fits = large.largest_batch(1e9)
    assert large.training_memory(fits) <= 1e9 < large.training_memory(fits + 1)
    assert Footprint(10**9, 4, 10, 0.1, 0.1).largest_batch(1e9) == 0
