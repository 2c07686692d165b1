"""Networks stay where they are placed, batches are brought to them, and precision is
found by trial where asked.
"""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.models import build, compute
from fedaux.models.compute import (
    CPU,
    Compute,
    DeviceError,
    compute_of,
    find_device,
    forward,
    place,
    place_by_settings,
)
from helpers.other_device import OTHER, OtherTensor, other_device

SHAPE = (3, 8, 8)


@pytest.fixture
def network() -> nn.Module:
    return build(PrototypeSpec.of("cnn", width=4, features=8), SHAPE, 3, seed=0)


@pytest.fixture
def batch() -> torch.Tensor:
    return torch.randn(5, *SHAPE, generator=torch.Generator().manual_seed(1))


def test_in_float32_it_is_the_network_itself(
    network: nn.Module, batch: torch.Tensor
) -> None:
    expected = network(batch)
    assert torch.equal(forward(network, batch), expected)
    torch.testing.assert_close(forward(place(network, Compute()), batch), expected)


def test_bfloat16_is_close_and_returns_float32(
    network: nn.Module, batch: torch.Tensor
) -> None:
    expected = network(batch)
    rounded = forward(place(network, Compute(precision="bfloat16")), batch)
    assert rounded.dtype == torch.float32
    assert all(parameter.dtype == torch.float32 for parameter in network.parameters())
    assert not torch.equal(rounded, expected)
    torch.testing.assert_close(rounded, expected, rtol=0.05, atol=0.05)


def test_parts_and_copies_of_a_network_are_where_it_is(network: nn.Module) -> None:
    assert compute_of(network) == compute_of(nn.ReLU()) == Compute(CPU, "float32")
    place(network, Compute(precision="bfloat16"))
    for part in (network, network.features, network.head, copy.deepcopy(network)):
        assert compute_of(part).precision == "bfloat16"


def test_a_batch_follows_its_network(
    network: nn.Module, batch: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = network(batch)
    with other_device(monkeypatch):
        place_by_settings(network, "auto", "float32")
        assert compute_of(network).device == OTHER
        assert all(
            isinstance(parameter, OtherTensor) for parameter in network.parameters()
        )
        with pytest.raises(RuntimeError, match="two devices"):
            network(batch)
        output = forward(network, batch)
        with pytest.raises(TypeError, match="numpy cannot see"):
            output.detach().numpy()
        torch.testing.assert_close(output.cpu(), expected)
        assert compute_of(network).put(["some", "text"]) == ["some", "text"]


@pytest.mark.parametrize("name", ["cuda:99", "mps:7", "xpu"])
def test_a_device_that_is_not_there_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(
        DeviceError,
        match=f"device = '{name}': this machine has only .*cpu. Set device = 'auto'",
    ):
        find_device(name)


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_device("cpu") == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert find_device("auto") == CPU
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert find_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert find_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("faster", ["float32", "bfloat16"])
def test_auto_precision_is_the_faster_one_and_tried_once(
    faster: str, network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path))
    tried = []

    def trial(*arguments: object) -> dict[str, float]:
        tried.append(arguments)
        return {
            name: 1.0 if name == faster else 2.0 for name in ("float32", "bfloat16")
        }

    monkeypatch.setattr(compute, "_trial", trial)
    for _ in range(2):
        assert (
            compute_of(place_by_settings(network, "cpu", "auto", SHAPE)).precision
            == faster
        )
    assert len(tried) == 1
    place_by_settings(
        build(PrototypeSpec.of("cnn", width=6, features=8), SHAPE, 3, seed=0),
        "cpu",
        "auto",
        SHAPE,
    )
    assert len(tried) == 2
    # text is not tried
    assert (
        compute_of(place_by_settings(network, "cpu", "auto", ())).precision == "float32"
    )


def test_a_trial_times_both_and_leaves_the_network_alone(network: nn.Module) -> None:
    before = copy.deepcopy(network.state_dict())
    seconds = compute._trial(network, SHAPE, CPU)
    assert set(seconds) == {"float32", "bfloat16"}
    assert all(0 < value < 60 for value in seconds.values())
    assert all(
        torch.equal(value, before[name]) for name, value in network.state_dict().items()
    )
    assert all(parameter.grad is None for parameter in network.parameters())
