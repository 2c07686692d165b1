"""What a network takes, measured on a few records: parameters, memory of its activations, time of a step."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedaux.data.records import Records
from fedaux.models.compute import forward
from fedaux.models.flat_state import flatten_state
from fedaux.models.registry import Prototype

MAX_ROWS, REPEATS = 64, 3  # records of a timed step, and how often it is made; the fastest counts
MAX_BYTES = 2**26  # of the activations of a timed step


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
        """Rows for which a step stays below this many bytes; 0 if not one does."""
        return max(0, int((memory - 16 * self.parameters) // max(self.activations, 1)))


def measure(network: Prototype, records: Records) -> Footprint:
    """Of a freshly built network, which is left in eval mode; nothing is trained."""
    network.train()
    few = np.arange(min(2, len(records)))  # two: BatchNorm wants more than one
    kept = _activations(network, records.batch(few)) // len(few)
    rows = np.arange(min(len(records), max(2, min(MAX_ROWS, MAX_BYTES // max(kept, 1)))))
    batch = records.batch(rows)
    step = min(_seconds(network, batch, backward=True) for _ in range(REPEATS)) / len(rows)
    network.eval()
    with torch.inference_mode():
        ahead = min(_seconds(network, batch, backward=False) for _ in range(REPEATS)) / len(rows)
    network.zero_grad(set_to_none=True)
    sizes = sum(array.nbytes for array in flatten_state(network).values())
    return Footprint(sum(parameter.numel() for parameter in network.parameters()), sizes, kept, ahead, step)


def available_memory() -> int:
    """Bytes that programs may still take."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _activations(network: nn.Module, batch: Any) -> int:
    """Bytes of what all layers return, which the backward pass needs."""
    sizes: list[int] = []

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            sizes.append(output.numel() * output.element_size())

    leaves = [module for module in network.modules() if not list(module.children())]
    handles = [module.register_forward_hook(note) for module in leaves]
    try:
        with torch.no_grad():
            forward(network, batch)
    finally:
        for handle in handles:
            handle.remove()
    return sum(sizes)


def _seconds(network: nn.Module, batch: Any, backward: bool) -> float:
    start = time.perf_counter()
    output = forward(network, batch)
    if backward:
        output.square().mean().backward()  # type: ignore[no-untyped-call]
    return time.perf_counter() - start
