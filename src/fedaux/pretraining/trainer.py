"""P1, what all self-supervised tasks share: epochs of Adam over D_aux, a curve, and a checkpoint after each epoch."""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import nn

from fedaux.config.schema import PretrainConfig
from fedaux.core.io import write_atomically
from fedaux.core.rng import derive_seed, torch_stream
from fedaux.data.batching import batches
from fedaux.data.records import Indices, Records
from fedaux.pretraining.metrics import FeatureQuality

SAMPLE = 512  # the records on which quality is watched


@dataclass(frozen=True)
class EpochMetrics:
    """One epoch of the curve: the loss, how good the features are without any label, and how fast it went."""

    epoch: int
    loss: float
    quality: FeatureQuality
    views_per_second: float


class SelfSupervisedTask(ABC):
    """Extractor, task head, Adam and the curve so far: everything that a checkpoint must hold.

    Adam with a tenth of the steps as warm-up, then a cosine to zero. Every epoch draws from a stream of its own, so a
    run that goes on from a checkpoint draws what an uninterrupted one would have drawn.
    """

    views = 1  # of each record in an epoch

    def __init__(self, extractor: nn.Module, head: nn.Module, aux: Records, config: PretrainConfig, seed: int) -> None:
        self.aux, self.config, self.seed = aux, config, seed
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.extractor = extractor
        self.model = _placed(nn.Sequential(extractor, head), self.device, torch.channels_last)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self.curve: list[EpochMetrics] = []

    @abstractmethod
    def backward(self, rows: Indices, generator: torch.Generator, seed: int) -> float:
        """The mean loss of these records, its gradient added to the model's; `seed` is for dropout, if any."""

    @abstractmethod
    def quality(self, rows: Indices, generator: torch.Generator) -> FeatureQuality:
        """Of the extractor, in eval mode."""

    def run_epoch(self) -> EpochMetrics:
        """One pass over D_aux."""
        epoch, started, total = len(self.curve), time.perf_counter(), 0.0
        generator = torch_stream(self.seed, epoch)
        self.model.train()
        for step, rows in enumerate(batches(len(self.aux), self.config.batch_size, generator)):
            self._set_rate(epoch, step)
            self.optimiser.zero_grad(set_to_none=True)
            total += len(rows) * self.backward(rows, generator, derive_seed(self.seed, "forward", epoch, step))
            self.optimiser.step()
        rate = self.views * len(self.aux) / (time.perf_counter() - started)
        self.model.eval()
        with torch.inference_mode():  # on the same few records and views after every epoch
            sample = np.arange(min(SAMPLE, len(self.aux)))
            quality = self.quality(sample, torch_stream(self.seed, "quality"))
        self.curve.append(EpochMetrics(epoch + 1, total / len(self.aux), quality, rate))
        return self.curve[-1]

    def _set_rate(self, epoch: int, step: int) -> None:
        per_epoch = math.ceil(len(self.aux) / self.config.batch_size)
        rate = self.config.lr * warmup_cosine(epoch * per_epoch + step, self.config.epochs * per_epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def save(self, path: Path) -> None:
        tensors = {f"model|{name}": tensor.contiguous() for name, tensor in self.model.state_dict().items()}
        for index, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam|{index}|{name}": tensor.contiguous() for name, tensor in moments.items()}
        curve = json.dumps([asdict(epoch) for epoch in self.curve])
        write_atomically(path, save(tensors, metadata={"curve": curve}))

    def load(self, path: Path) -> None:
        with safe_open(path, framework="pt") as file:
            curve = json.loads(file.metadata()["curve"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (not a mapping)
        self.model.load_state_dict({key[6:]: value for key, value in tensors.items() if key.startswith("model|")})
        adam = self.optimiser.state_dict()
        for key, value in tensors.items():
            if key.startswith("adam|"):
                _, index, name = key.split("|")
                adam["state"].setdefault(int(index), {})[name] = value
        self.optimiser.load_state_dict(adam)
        self.curve = [EpochMetrics(**{**one, "quality": FeatureQuality(**one["quality"])}) for one in curve]


def pretrain(
    task: SelfSupervisedTask, watch: Callable[[EpochMetrics], None] = lambda epoch: None, checkpoint: Path | None = None
) -> list[EpochMetrics]:
    """Train the task's extractor in place on all of D_aux, without labels, and return the curve.

    With a `checkpoint` path, the state is kept there after every epoch and taken up again if the file exists.
    """
    if checkpoint is not None and checkpoint.is_file():
        task.load(checkpoint)
    while len(task.curve) < task.config.epochs:
        watch(task.run_epoch())
        if checkpoint is not None:
            task.save(checkpoint)
    _placed(task.extractor, torch.device("cpu"), torch.contiguous_format)
    return task.curve


def warmup_cosine(step: int, steps: int) -> float:
    """Linear warm-up over a tenth of the steps, then a cosine to zero, as a share of the full rate."""
    warm = max(1, steps // 10)
    return (step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 where asked for; nothing otherwise."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()


def _placed(module: nn.Module, device: torch.device, layout: torch.memory_format) -> nn.Module:
    return module.to(device).to(memory_format=layout)  # type: ignore[call-overload, no-any-return]
