"""Where a network computes, and how precisely.

A network is placed once and stays there. `forward` brings each batch to it. What a
guarantee covers is computed elsewhere: private records pass networks on the processor
in float32, one at a time (`privacy.per_record`).
"""

from __future__ import annotations

import copy
import json
import platform
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import cache_folder, write_atomically

M = TypeVar("M", bound=nn.Module)
CPU = torch.device("cpu")
TRIAL_ROWS = 64
TRIAL_STEPS = 3


class DeviceError(FedauxError, ValueError):
    """A device that this machine does not have."""

    code = Exit.SETTINGS


@dataclass(frozen=True)
class Compute:
    """A device, and the precision of matrix products and convolutions. Weights and sums
    are float32 in either case.
    """

    device: torch.device = CPU
    precision: str = "float32"

    def put(self, batch: Any) -> Any:
        """A batch on the device; text stays text, which its network tokenises."""
        if not isinstance(batch, Tensor):
            return batch
        if self.device.type == "cuda":
            # so that the copy overlaps with the work before it
            batch = batch.pin_memory()
        return batch.to(self.device, non_blocking=True)

    def autocast(self) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def place(module: M, compute: Compute) -> M:
    """Move a network to its device, where it stays. Convolutions are fastest with
    channels last.
    """
    module.to(compute.device)
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for layer in module.modules():
        layer._compute = compute  # type: ignore[assignment]
    return module


def compute_of(module: nn.Module) -> Compute:
    """Return where `place` has put the network, for any other network, the device of
    its weights, in float32.
    """
    placed = getattr(module, "_compute", None)
    if isinstance(placed, Compute):
        return placed
    first = next(module.parameters(), None)
    return Compute() if first is None else Compute(first.device)


def forward(module: nn.Module, batch: Any) -> Tensor:
    """The module's output for a batch from anywhere: float32, on the module's
    device.
    """
    compute = compute_of(module)
    with compute.autocast():
        output: Tensor = module(compute.put(batch))
    return output.float()


def find_device(name: str) -> torch.device:
    """`auto` is a GPU if there is one. An error if this machine has no such device."""
    is_present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    present = [kind for kind in is_present if is_present[kind]]
    if name == "auto":
        return torch.device(present[0])
    device = torch.device(name)
    missing = device.type not in present
    if device.type == "cuda" and not missing:
        missing = (device.index or 0) >= torch.cuda.device_count()
    if missing:
        raise DeviceError(
            f"Cannot use device = {name!r}: this machine has only "
            f"{', '.join(present)}. Set device = 'auto'."
        )
    return device


def place_by_settings(
    network: M, device: str, precision: str, shape: tuple[int, ...] = ()
) -> M:
    """Place a network as a configuration says. `auto` precision is the faster one in a
    trial on rows of this shape.

    Text has no trial: it is float32 unless bfloat16 is asked for.
    """
    where = find_device(device)
    if precision == "auto":
        precision = faster_precision(network, where, shape) if shape else "float32"
    return place(network, Compute(where, precision))


def faster_precision(
    network: nn.Module, where: torch.device, shape: tuple[int, ...]
) -> str:
    """Return the precision in which a training step is faster on this machine. It is
    timed once per network.
    """
    path = cache_folder() / "precision.json"
    faster: dict[str, str] = {}
    if path.is_file():
        faster = json.loads(path.read_bytes())
    software = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    key = f"{_processor(where)}, {software}: {shape}, {network}"
    if key not in faster:
        seconds = _trial(network, shape, where)
        faster[key] = min(seconds, key=seconds.__getitem__)
        write_atomically(path, json.dumps(faster, indent=1).encode())
    return faster[key]


def _trial(
    network: nn.Module, shape: tuple[int, ...], device: torch.device
) -> dict[str, float]:
    """Seconds of a training step in each precision, the least of a few, taken in
    turn.
    """
    arms = {
        name: place(copy.deepcopy(network), Compute(device, name))
        for name in ("float32", "bfloat16")
    }
    batch = torch.randn(TRIAL_ROWS, *shape, generator=torch.Generator().manual_seed(0))
    best = dict.fromkeys(arms, float("inf"))
    for step in range(1 + TRIAL_STEPS):
        for name, arm in arms.items():
            started = time.perf_counter()
            forward(arm.train(), batch).sum().backward()  # type: ignore[no-untyped-call]
            if device.type != "cpu":
                torch.accelerator.synchronize()
            if step:
                best[name] = min(best[name], time.perf_counter() - started)
    return best


def _processor(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor()
