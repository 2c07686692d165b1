"""P1: the training loop of all self-supervised tasks, with a checkpoint after each
epoch; quality of features.
"""

from __future__ import annotations

import io
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.config.sections import PretrainConfig
from fedaux.core.io import write_atomically
from fedaux.core.progress import ProgressTask
from fedaux.core.rng import derive_seed, torch_stream
from fedaux.data.partition import batches
from fedaux.data.records import Indices, Records
from fedaux.models.compute import compute_of, place

QUALITY_RECORDS = 512  # records on which feature quality is measured


@dataclass(frozen=True)
class FeatureQuality:
    """Without labels (Wang & Isola 2020; Roy & Vetterli 2007).

    alignment: mean squared distance of two views of an image on the unit sphere. 0 is
    perfect. uniformity: log of the mean Gaussian potential between images; lower is
    more uniform. rank: effective rank of the features.
    """

    alignment: float
    uniformity: float
    rank: float


def feature_quality(first: Tensor, second: Tensor) -> FeatureQuality:
    """Compute the quality from the features of two views of the same images, (B, H)
    each.
    """
    u = F.normalize(first, dim=1)
    v = F.normalize(second, dim=1)
    alignment = (u - v).square().sum(dim=1).mean()
    uniformity = torch.pdist(u).square().mul(-2).exp().mean().log()
    singular_values = torch.linalg.svdvals(first - first.mean(dim=0))
    p = singular_values / singular_values.sum().clamp_min(1e-12)
    rank = torch.exp(-(p * p.clamp_min(1e-12).log()).sum())
    return FeatureQuality(float(alignment), float(uniformity), float(rank))


@dataclass(frozen=True)
class EpochMetrics:
    """Metrics of one epoch of pre-training."""

    epoch: int
    loss: float
    quality: FeatureQuality
    views_per_second: float


class SelfSupervisedTask(ABC):
    """Extractor, task head, Adam and the curve so far: the state in a checkpoint.

    Each epoch has its own random stream, so a resumed training draws the same numbers
    as an uninterrupted one.
    """

    views = 1  # of each record per epoch

    def __init__(
        self,
        extractor: nn.Module,
        head: nn.Module,
        aux: Records,
        config: PretrainConfig,
        seed: int,
    ) -> None:
        self.aux = aux
        self.config = config
        self.seed = seed
        self.extractor = extractor
        self.compute = compute_of(extractor)
        self.model = place(nn.Sequential(extractor, head), self.compute)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay
        )
        self.curve: list[EpochMetrics] = []

    @abstractmethod
    def backward(self, rows: Indices, generator: torch.Generator, seed: int) -> float:
        """Backpropagate the mean loss of these records and return it. `seed` is for
        dropout.
        """

    @abstractmethod
    def quality(self, rows: Indices, generator: torch.Generator) -> FeatureQuality:
        """Feature quality of the extractor in eval mode."""

    @property
    def steps(self) -> int:
        """The number of steps in one epoch."""
        return math.ceil(len(self.aux) / self.config.batch_size)

    def run_epoch(self, on_step: Callable[[], None] = lambda: None) -> EpochMetrics:
        """Train for one pass over D_aux."""
        epoch = len(self.curve)
        start = time.perf_counter()
        total = 0.0
        generator = torch_stream(self.seed, epoch)
        self.model.train()
        for step, rows in enumerate(
            batches(len(self.aux), self.config.batch_size, generator)
        ):
            self._set_lr(epoch, step)
            self.optimizer.zero_grad(set_to_none=True)
            total += len(rows) * self.backward(
                rows, generator, derive_seed(self.seed, "forward", epoch, step)
            )
            self.optimizer.step()
            on_step()
        views_per_second = self.views * len(self.aux) / (time.perf_counter() - start)
        self.model.eval()
        with torch.inference_mode():  # on the same records and views after every epoch
            sample = np.arange(min(QUALITY_RECORDS, len(self.aux)))
            quality = self.quality(sample, torch_stream(self.seed, "quality"))
        self.curve.append(
            EpochMetrics(epoch + 1, total / len(self.aux), quality, views_per_second)
        )
        return self.curve[-1]

    def _set_lr(self, epoch: int, step: int) -> None:
        lr = self.config.lr * warmup_cosine(
            epoch * self.steps + step, self.config.epochs * self.steps
        )
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def save(self, path: Path) -> None:
        curve = [asdict(epoch) for epoch in self.curve]
        stream = io.BytesIO()
        torch.save(
            {
                "model": self.model.state_dict(),
                "adam": self.optimizer.state_dict(),
                "curve": curve,
            },
            stream,
        )
        write_atomically(path, stream.getvalue())

    def load(self, path: Path) -> None:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["adam"])
        self.curve = [
            EpochMetrics(**{**row, "quality": FeatureQuality(**row["quality"])})
            for row in saved["curve"]
        ]


def pretrain(
    task: SelfSupervisedTask,
    on_epoch: Callable[[EpochMetrics], None] = lambda epoch: None,
    checkpoint: Path | None = None,
) -> list[EpochMetrics]:
    """Train the task's extractor in place on all of D_aux, without labels, and return
    the curve.

    With a `checkpoint` path, the state is saved there after every epoch and restored if
    the file exists.
    """
    if checkpoint is not None and checkpoint.is_file():
        task.load(checkpoint)
    work = ProgressTask(
        "steps of pre-training",
        task.config.epochs * task.steps,
        len(task.curve) * task.steps,
    )
    while len(task.curve) < task.config.epochs:
        on_epoch(task.run_epoch(work.step))
        if checkpoint is not None:
            task.save(checkpoint)
    if task.compute.precision == "float32":
        task.extractor.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return task.curve


def warmup_cosine(step: int, steps: int) -> float:
    """Linear warm-up over a tenth of the steps, then a cosine to zero, as a factor of
    the learning rate.
    """
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    progress = math.pi * (step - warm) / max(1, steps - warm)
    return 0.5 * (1 + math.cos(progress))


def linear_probe(train: Records, test: Records) -> float:
    """Test accuracy of a logistic regression on the flattened and standardised rows of
    `train`.

    It uses labels, so it is for reports only, never for model selection.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, x_test = (records.tensor().flatten(1).numpy() for records in (train, test))
    with warnings.catch_warnings():  # accurate enough for a report
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(
            x, train.labels
        )
    return float(probe.score(x_test, test.labels))
