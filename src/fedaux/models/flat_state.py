"""A module's state as one flat array per kind: each array is a request on the wire, so
there are few of them.

`parameters`  float32, all parameters in the order of `named_parameters` `buffers`
float32, floating buffers (running mean and variance of BatchNorm); absent if there are
none `counters`    int64, integer buffers (`num_batches_tracked`); absent if there are
none

Aggregation averages parameters and buffers weighted by |D_i| and takes the maximum of
counters. Networks are in eval mode except in local training.
`flatten_state(prototype.features)` is the state of the extractor h0 alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedaux.core.arrays import Arrays

SINGLE = np.dtype(np.float32)
DTYPES: dict[str, np.dtype[Any]] = {
    "parameters": SINGLE,
    "buffers": SINGLE,
    "counters": np.dtype(np.int64),
}


def flatten_state(module: nn.Module) -> Arrays:
    """A fresh copy of the state, on the CPU."""
    weights: Arrays = {}
    for kind, tensors in _tensors(module).items():
        dtype = torch.int64 if kind == "counters" else torch.float32
        rows = [tensor.detach().reshape(-1).to("cpu", dtype) for tensor in tensors]
        weights[kind] = torch.cat(rows).numpy()
    return weights


@torch.no_grad()
def load_state(module: nn.Module, weights: Arrays) -> None:
    """Copy `weights` into the module's tensors, on any device. A mismatch raises before
    anything is copied.
    """
    state = _tensors(module)
    _check(_sizes(state), weights)
    for kind, tensors in state.items():
        # a copy: from_numpy warns about read-only arrays
        whole = torch.tensor(weights[kind])
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, row in zip(tensors, torch.split(whole, sizes), strict=True):
            tensor.copy_(row.view(tensor.shape))


def to_half(weights: Arrays) -> Arrays:
    """Floating arrays in half precision, to halve the bytes on the wire. `load_state`
    accepts them.
    """
    half = dict(weights)
    for kind, array in weights.items():
        if array.dtype == np.float32:
            half[kind] = array.astype(np.float16)
    return half


def state_sizes(module: nn.Module) -> dict[str, int]:
    """The size of each array of the flat state."""
    return _sizes(_tensors(module))


def _sizes(state: dict[str, list[Tensor]]) -> dict[str, int]:
    return {kind: sum(map(Tensor.numel, tensors)) for kind, tensors in state.items()}


def _tensors(module: nn.Module) -> dict[str, list[Tensor]]:
    """The state by kind: persistent buffers only, tied tensors once."""
    kinds: dict[str, list[Tensor]] = {kind: [] for kind in DTYPES}
    seen: set[int] = set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if tensor.dtype in (torch.float64, torch.complex64, torch.complex128):
            raise ValueError(
                f"{name} is {tensor.dtype}, which float32 cannot carry exactly. Call "
                ".float() on the module."
            )
        kind = "counters"
        if tensor.is_floating_point():
            kind = "parameters" if isinstance(tensor, nn.Parameter) else "buffers"
        kinds[kind].append(tensor)
    return {kind: tensors for kind, tensors in kinds.items() if tensors}


def _check(expected: dict[str, int], weights: Arrays) -> None:
    advice = (
        "build both sides from the same PrototypeSpec, input shape and number of "
        "classes"
    )
    if set(weights) != set(expected):
        raise ValueError(
            f"weights hold {sorted(weights)}, this network has {sorted(expected)}; "
            f"{advice}"
        )
    for kind, size in expected.items():
        array = weights[kind]
        if array.shape != (size,):
            raise ValueError(
                f"{kind} have shape {array.shape}, this network expects ({size},); "
                f"{advice}"
            )
        half = array.dtype == np.float16 and DTYPES[kind] == SINGLE  # of `to_half`
        if array.dtype != DTYPES[kind] and not half:
            raise ValueError(
                f"{kind} are {array.dtype}, expected {DTYPES[kind]}. Convert them with "
                ".astype."
            )
