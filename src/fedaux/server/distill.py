"""T3: one student per prototype learns the ensemble's soft labels on D_distill."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.config.distillation import DistillConfig
from fedaux.config.schema import Config
from fedaux.core.arrays import Arrays
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.rng import torch_stream
from fedaux.data.partition import batch_starts, batches, shuffled
from fedaux.data.records import Records
from fedaux.methods.contribution import Ensemble
from fedaux.models import flatten_state, load_state
from fedaux.models.compute import forward
from fedaux.models.optimizer import Losses, Optimizer, mean_loss
from fedaux.server.networks import Networks


class DivergedError(FedauxError, ArithmeticError):
    """Training produced NaN or infinity; nothing of it is saved."""

    code = Exit.DIVERGED


def distillation_loss(student: Tensor, soft_labels: Tensor) -> Tensor:
    """Eq. 1: batch mean of KL(ỹ ‖ softmax(f(x))). student: logits (B, C); soft_labels:
    probabilities (B, C).
    """
    return F.kl_div(F.log_softmax(student, dim=1), soft_labels, reduction="batchmean")


def distill(
    student: nn.Module,
    records: Records,
    ensemble: Ensemble,
    settings: DistillConfig,
    generator: torch.Generator,
) -> float:
    """Minimise KL(ỹ ‖ student), and return the mean loss of the last epoch.

    The student stays in eval mode, unless told otherwise: normalisation keeps the
    averaged statistics of the private data instead of drifting to those of the
    auxiliary data, and a row's prediction never depends on its batch. With `patience`,
    the best student on the held-out public examples is kept; private and test labels
    are not used.
    """
    student.train(settings.train_mode)
    descent = Optimizer(lr=settings.lr).make(list(student.parameters()))
    rows = np.arange(len(records))
    held_out = np.empty(0, np.int64)
    if settings.patience:
        held_out, rows = np.split(
            shuffled(len(records), generator), [len(records) // 10]
        )
    steps = settings.steps or settings.epochs * len(
        batch_starts(len(rows), settings.batch_size)
    )
    losses = Losses()
    best = Best(settings.patience)

    def loss_on(batch: NDArray[np.int64]) -> Tensor:
        logits = forward(student, records.batch(batch))
        soft_labels = torch.from_numpy(ensemble.soft_labels(batch))
        return distillation_loss(logits, soft_labels.to(logits.device))

    all_batches = _steps(rows, settings.batch_size, steps, generator)
    for step, batch in enumerate(all_batches, 1):
        loss = loss_on(batch)
        descent.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        descent.step()
        losses.append((loss.detach(), len(batch)))
        if len(held_out) and best.stops(
            step, student, lambda: _evaluated(student, loss_on, held_out, settings)
        ):
            break
    descent.zero_grad()
    best.load(student)
    batches_per_epoch = len(batch_starts(len(rows), settings.batch_size))
    return mean_loss(losses[-batches_per_epoch:])


@dataclass
class Best:
    """Early stopping: keeps the weights with the lowest loss so far, measured ten times
    within the patience.
    """

    patience: int
    step: int = 0
    loss: float = math.inf
    weights: Arrays = field(default_factory=dict)

    def stops(self, step: int, student: nn.Module, loss: Callable[[], float]) -> bool:
        if step % max(1, self.patience // 10):
            return False
        current = loss()
        if current < self.loss:
            self.step = step
            self.loss = current
            self.weights = flatten_state(student)
        return step - self.step >= self.patience

    def load(self, student: nn.Module) -> None:
        if self.weights:
            load_state(student, self.weights)


def _steps(
    rows: NDArray[np.int64], batch_size: int, steps: int, generator: torch.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield batches, epoch after epoch, for this number of steps."""
    epochs = (
        rows[batch]
        for _ in itertools.count()
        for batch in batches(len(rows), batch_size, generator)
    )
    return itertools.islice(epochs, steps)


def _evaluated(
    student: nn.Module,
    loss_on: Callable[[NDArray[np.int64]], Tensor],
    rows: NDArray[np.int64],
    settings: DistillConfig,
) -> float:
    """Mean loss on these examples, in eval mode."""
    student.eval()
    with torch.no_grad():
        pieces = np.array_split(rows, max(1, len(rows) // settings.batch_size))
        total = sum(float(loss_on(batch)) * len(batch) for batch in pieces)
    student.train(settings.train_mode)
    return total / len(rows)


def distill_students(
    networks: Networks,
    weights: dict[str, Arrays],
    inputs: Callable[[str], Records],
    ensemble: Ensemble,
    config: Config,
    round_: int,
) -> tuple[dict[str, Arrays], float]:
    """Distil the ensemble into one student per prototype, each from its own weights;
    return them and the mean loss.
    """
    students: dict[str, Arrays] = {}
    losses: list[float] = []
    for label in weights:
        student = networks.loaded(label, weights[label])
        generator = torch_stream(config.seed, "distill", label, round_)
        loss = distill(student, inputs(label), ensemble, config.distill, generator)
        losses.append(loss)
        students[label] = flatten_state(student)
    if not np.isfinite(losses).all():
        raise DivergedError(
            f"distillation diverged in round {round_}: lower distill.lr (of a "
            "strategy, distill_lr) and go on with `fedaux resume`"
        )
    return students, float(np.mean(losses))
