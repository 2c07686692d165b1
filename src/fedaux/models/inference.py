"""Batched forward passes, and what they cost."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.core.io import temporary_array
from fedaux.data.records import Records, is_text
from fedaux.models.compute import compute_of, forward
from fedaux.models.flat_state import flatten_state
from fedaux.models.registry import Prototype, folded, is_linear_head

Rows = NDArray[np.float32]
# rows in one forward pass
MIN_BLOCK = 16
MAX_BLOCK = 4096
DEFAULT_BLOCK = 512
HEAD_BLOCK = 8192
# of a block: limits found by measuring five networks
INPUT_BYTES = 3 * 2**19
ACTIVATION_BYTES = 10 * 2**20
# bytes for one row
_activations: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()


def predict_batches(
    module: nn.Module, records: Records, block: int = 0
) -> Iterator[tuple[slice, Rows]]:
    """The module's outputs in eval mode, block by block: logits of a model, features of
    an extractor.
    """
    module.eval()
    plain = is_linear_head(module)
    network = folded(module)
    for rows in records.blocks(block or block_rows(module, records)):
        with torch.inference_mode():
            outputs = forward(network, records.batch(rows, view=plain)).cpu().numpy()
        yield rows, outputs


def block_rows(module: nn.Module, records: Records) -> int:
    """Rows in one forward pass: a power of two that keeps inputs and the largest
    activation in the processor's cache.

    Blocks of 512 images took ResNet-8 of width 16 1.8 times as long as blocks of 128;
    width 64 wants 32. A head reads every row once, cache or not.
    """
    if is_text(records.x) or compute_of(module).device.type != "cpu":
        return DEFAULT_BLOCK
    if is_linear_head(module):
        return HEAD_BLOCK
    if module not in _activations:
        two = records.batch(slice(0, 2))  # a network may refuse a single row
        _activations[module] = max(output_sizes(module, two)) // len(two)
    rows = min(
        INPUT_BYTES // (4 * prod(records.shape)),
        ACTIVATION_BYTES // max(1, _activations[module]),
        MAX_BLOCK,
    )
    return 1 << max(rows, MIN_BLOCK).bit_length() - 1


def output_sizes(module: nn.Module, batch: Any, *, leaves: bool = False) -> list[int]:
    """Bytes of what every submodule, or every one without submodules, returns for a
    batch.
    """
    sizes: list[int] = []

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        sizes.append(output.nbytes if isinstance(output, Tensor) else 0)

    parts = [
        part for part in module.modules() if not (leaves and list(part.children()))
    ]
    handles = [part.register_forward_hook(note) for part in parts]
    try:
        with torch.no_grad():
            forward(module, batch)
    finally:
        for handle in handles:
            handle.remove()
    return sizes


def predict(module: nn.Module, records: Records) -> Rows:
    """The module's outputs for all records in eval mode, (N, H)."""
    return stack_blocks(predict_batches(module, records), len(records))


def transform_rows(
    records: Records,
    transform: Callable[[Rows], NDArray[np.floating]],
    size: int = 2**14,
) -> Rows:
    """Apply a row-wise transform block by block to rows that may be memory-mapped, (N,
    H) → (N, k).
    """
    blocks = ((rows, transform(records.gather(rows))) for rows in records.blocks(size))
    return stack_blocks(blocks, len(records))


def stack_blocks(
    blocks: Iterable[tuple[slice, NDArray[np.floating]]], count: int
) -> Rows:
    """Concatenate blocks of rows into one array, memory-mapped if it is large."""
    out: Rows | None = None
    for rows, block in blocks:
        if out is None:
            out = temporary_array((count, block.shape[1]), np.float32)
        out[rows] = block
    if out is None:
        raise ValueError("there are no records to process")
    return out


# records of a timed step, and how often it is made; the fastest counts
MAX_ROWS = 64
REPEATS = 3
MAX_ACTIVATION_BYTES = 2**26  # of the activations of a timed step


@dataclass(frozen=True)
class Footprint:
    """Bytes and seconds for one record."""

    parameters: int
    sent: int  # bytes of the model on the wire, buffers included
    activations: int  # bytes kept for the backward pass
    forward: float
    step: float  # forward, backward and the optimiser's share

    def training_memory(self, rows: int) -> int:
        """Bytes of a step: weights, gradients, both moments of Adam, activations."""
        return 16 * self.parameters + rows * self.activations

    def largest_batch(self, memory: float) -> int:
        """Rows for which a step stays below this many bytes, or 0 if not one does."""
        return max(0, int((memory - 16 * self.parameters) // max(self.activations, 1)))


def measure(network: Prototype, records: Records) -> Footprint:
    """Measure the footprint of a freshly built network, which is left in eval mode.
    Nothing is trained.
    """
    network.train()
    few = np.arange(min(2, len(records)))  # two: BatchNorm wants more than one
    # needed by the backward pass
    kept = sum(output_sizes(network, records.batch(few), leaves=True)) // len(few)
    rows = np.arange(
        min(len(records), max(2, min(MAX_ROWS, MAX_ACTIVATION_BYTES // max(kept, 1))))
    )
    batch = records.batch(rows)
    step = min(_seconds(network, batch, backward=True) for _ in range(REPEATS)) / len(
        rows
    )
    network.eval()
    with torch.inference_mode():
        ahead = min(
            _seconds(network, batch, backward=False) for _ in range(REPEATS)
        ) / len(rows)
    network.zero_grad(set_to_none=True)
    sizes = sum(array.nbytes for array in flatten_state(network).values())
    return Footprint(
        sum(parameter.numel() for parameter in network.parameters()),
        sizes,
        kept,
        ahead,
        step,
    )


def available_memory() -> int:
    """Bytes that programs may still take."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        return 1024 * next(
            int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")
        )
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _seconds(network: nn.Module, batch: Any, backward: bool) -> float:
    start = time.perf_counter()
    output = forward(network, batch)
    if backward:
        output.square().mean().backward()  # type: ignore[no-untyped-call]
    return time.perf_counter() - start
