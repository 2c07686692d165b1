"""Flat weights: nothing is lost on the way out and back, and nothing that does not fit
gets in.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.arrays import Arrays
from fedaux.models import Prototype, build, flatten_state, load_state, state_sizes
from helpers.networks import IMAGES

RGB = (3, 8, 8)


def used(spec: PrototypeSpec, seed: int) -> Prototype:
    """A model whose buffers and counters are no longer those of a fresh one."""
    model = build(spec, RGB, 5, seed)
    for _ in range(seed + 1):
        model(torch.randn(4, *RGB, generator=torch.Generator().manual_seed(seed)))
    return model.eval()


@pytest.mark.parametrize("spec", IMAGES, ids=lambda spec: spec.label)
def test_round_trip_is_exact(spec: PrototypeSpec) -> None:
    model, other = used(spec, seed=1), used(spec, seed=2)
    places = {name: tensor.data_ptr() for name, tensor in other.state_dict().items()}
    weights = flatten_state(model)
    load_state(other, weights)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
        assert other.state_dict()[name].data_ptr() == places[name], name
    again = flatten_state(other)
    assert {kind: array.tobytes() for kind, array in again.items()} == {
        k: a.tobytes() for k, a in weights.items()
    }
    x = torch.ones(2, *RGB)
    assert torch.equal(model(x), other(x))


@pytest.mark.parametrize("spec", IMAGES, ids=lambda spec: spec.label)
def test_kinds_sizes_and_types(spec: PrototypeSpec) -> None:
    model = used(spec, seed=1)
    weights = flatten_state(model)
    batch = any(
        isinstance(module, nn.modules.batchnorm._BatchNorm)
        for module in model.modules()
    )
    assert set(weights) == (
        {"parameters", "buffers", "counters"} if batch else {"parameters"}
    )
    assert state_sizes(model) == {kind: array.size for kind, array in weights.items()}
    flat = torch.cat(
        [parameter.detach().flatten() for _, parameter in model.named_parameters()]
    )
    assert np.array_equal(weights["parameters"], flat.numpy())
    assert weights["parameters"].dtype == np.float32
    if batch:
        assert weights["buffers"].dtype == np.float32
        assert weights["counters"].dtype == np.int64
        assert set(weights["counters"]) == {2}


def test_dump_is_a_copy_and_so_is_load() -> None:
    model = used(PrototypeSpec.of("cnn", norm="batch"), seed=0)
    weights = flatten_state(model)
    kept = {kind: array.copy() for kind, array in weights.items()}
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.zero_()
    assert all(np.array_equal(weights[kind], kept[kind]) for kind in kept)
    load_state(model, weights)
    for array in weights.values():
        array.fill(0)
    assert all(np.array_equal(flatten_state(model)[kind], kept[kind]) for kind in kept)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_arrays_from_a_message_load_without_a_warning() -> None:
    model = used(PrototypeSpec.of("cnn", norm="batch"), seed=0)
    received = {
        kind: np.frombuffer(array.tobytes(), array.dtype)
        for kind, array in flatten_state(model).items()
    }
    assert not received["parameters"].flags.writeable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_state(model, received)
    assert all(
        np.array_equal(flatten_state(model)[kind], received[kind]) for kind in received
    )


def spoil(weights: Arrays, kind: str, how: str) -> Arrays:
    array = weights[kind]
    change = {
        "missing": lambda: {
            key: value for key, value in weights.items() if key != kind
        },
        "extra": lambda: weights | {"more": array},
        "short": lambda: weights | {kind: array[:-1]},
        "long": lambda: weights | {kind: np.append(array, array[:1])},
        "folded": lambda: weights | {kind: array[None]},
        "type": lambda: weights | {kind: array.astype(np.float64)},
    }
    return change[how]()


@pytest.mark.parametrize("kind", ["parameters", "buffers", "counters"])
@pytest.mark.parametrize("how", ["missing", "extra", "short", "long", "folded", "type"])
def test_load_refuses_what_does_not_fit_and_changes_nothing(
    kind: str, how: str
) -> None:
    spec = PrototypeSpec.of("mlp", norm="batch")
    model = used(spec, seed=0)
    before = flatten_state(model)
    with pytest.raises(ValueError, match=r"build both sides|\.astype"):
        load_state(model, spoil(flatten_state(used(spec, seed=1)), kind, how))
    assert all(np.array_equal(flatten_state(model)[key], before[key]) for key in before)


def test_tied_and_temporary_tensors() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3, bias=False)
            self.outer = nn.Linear(3, 3, bias=False)
            self.outer.weight = self.inner.weight
            self.register_buffer("scratch", torch.zeros(5), persistent=False)
            self.register_buffer("mask", torch.tensor([True, False]))

    model = Tied()
    assert state_sizes(model) == {"parameters": 9, "counters": 2}
    load_state(
        model,
        {"parameters": np.arange(9, dtype=np.float32), "counters": np.array([0, 1])},
    )
    assert torch.equal(model.outer.weight.detach(), torch.arange(9.0).view(3, 3))
    assert model.mask.tolist() == [False, True]


def test_double_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Call \.float\(\)"):
        flatten_state(nn.Linear(2, 2).double())
