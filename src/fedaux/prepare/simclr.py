"""P1: contrastive pre-training of an extractor on auxiliary images (Chen et al. 2020), resumable after any epoch."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedaux.config import PretrainConfig
from fedaux.data.records import Records, is_image
from fedaux.files import write_atomically
from fedaux.prepare.augment import random_views
from fedaux.prepare.quality import Quality, measure
from fedaux.seeds import derive, seeded_torch, torch_stream
from fedaux.train.local import batches


@dataclass(frozen=True)
class Epoch:
    """One epoch of the curve: the loss, how good the features are without any label, and how fast it went."""

    epoch: int
    loss: float
    quality: Quality
    views_per_second: float


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Each view must pick its partner among all other 2B − 1 views by cosine similarity. first, second: (B, D)."""
    views = F.normalize(torch.cat([first, second]), dim=1)
    similarity = views @ views.T / temperature
    similarity.fill_diagonal_(-torch.inf)
    size = len(first)
    partner = torch.cat([torch.arange(size, 2 * size), torch.arange(size)]).to(similarity.device)
    return F.cross_entropy(similarity, partner)


class SimCLR:
    """Extractor, projection head, Adam and the curve so far: everything that a checkpoint must hold.

    Adam with a tenth of the steps as warm-up, then a cosine to zero. Every epoch draws from a stream of its own, so a
    run that goes on from a checkpoint draws what an uninterrupted one would have drawn.
    """

    def __init__(self, extractor: nn.Module, width: int, aux: Records, config: PretrainConfig, seed: int) -> None:
        if not is_image(aux.x):
            raise ValueError(
                "pre-training needs auxiliary images (uint8, N×H×W×C); "
                "for other data set pretrain.epochs = 0, or use a method without +P"
            )
        self.aux, self.config, self.seed = aux, config, seed
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        with seeded_torch(derive(seed, "projection")):
            projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, config.projection))
        self.extractor = extractor
        self.model = _placed(nn.Sequential(extractor, projection), self.device, torch.channels_last)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self.curve: list[Epoch] = []

    def run_epoch(self) -> Epoch:
        """One pass over D_aux."""
        epoch, started, total = len(self.curve), time.perf_counter(), 0.0
        generator = torch_stream(self.seed, epoch)
        self.model.train()
        for step, rows in enumerate(batches(len(self.aux), self.config.batch, generator)):
            self._set_rate(epoch, step)
            loss = self._loss(self.aux.tensor(rows), generator, derive(self.seed, "forward", epoch, step))
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            total += loss.item() * len(rows)
        rate = 2 * len(self.aux) / (time.perf_counter() - started)
        self.curve.append(Epoch(epoch + 1, total / len(self.aux), self._quality(), rate))
        return self.curve[-1]

    def _loss(self, images: Tensor, generator: torch.Generator, seed: int) -> Tensor:
        views = torch.cat(
            [random_views(images, generator, crop=self.config.crop, flip=self.config.flip) for _ in range(2)]
        )
        views = views.to(self.device, memory_format=torch.channels_last)
        with seeded_torch(seed), autocast(self.config.precision, self.device):  # the seed is for dropout, if any
            first, second = self.model(views).float().chunk(2)
        return nt_xent(first, second, self.config.temperature)

    def _quality(self) -> Quality:
        """On the same few images and views after every epoch."""
        sample = self.aux.tensor(np.arange(min(512, len(self.aux))))
        generator = torch_stream(self.seed, "quality")
        self.model.eval()
        with torch.inference_mode():
            views = [random_views(sample, generator, crop=self.config.crop, flip=self.config.flip) for _ in range(2)]
            return measure(*(self.extractor(view.to(self.device)).float().cpu() for view in views))

    def _set_rate(self, epoch: int, step: int) -> None:
        per_epoch = math.ceil(len(self.aux) / self.config.batch)
        rate = self.config.lr * schedule(epoch * per_epoch + step, self.config.epochs * per_epoch)
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
        self.curve = [Epoch(**{**one, "quality": Quality(**one["quality"])}) for one in curve]


def pretrain(
    extractor: nn.Module,
    width: int,
    aux: Records,
    config: PretrainConfig,
    seed: int,
    watch: Callable[[Epoch], None] = lambda epoch: None,
    checkpoint: Path | None = None,
) -> list[Epoch]:
    """Train `extractor` in place on all of D_aux, without labels, and return the curve.

    With a `checkpoint` path, the state is kept there after every epoch and taken up again if the file exists.
    """
    run = SimCLR(extractor, width, aux, config, seed)
    if checkpoint is not None and checkpoint.is_file():
        run.load(checkpoint)
    while len(run.curve) < config.epochs:
        watch(run.run_epoch())
        if checkpoint is not None:
            run.save(checkpoint)
    _placed(extractor, torch.device("cpu"), torch.contiguous_format)
    return run.curve


def schedule(step: int, steps: int) -> float:
    """Linear warm-up over a tenth of the steps, then a cosine to zero, as a share of the full rate."""
    warm = max(1, steps // 10)
    return (step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _placed(module: nn.Module, device: torch.device, layout: torch.memory_format) -> nn.Module:
    return module.to(device).to(memory_format=layout)  # type: ignore[call-overload, no-any-return]


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """bfloat16 where asked for; nothing otherwise."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()
