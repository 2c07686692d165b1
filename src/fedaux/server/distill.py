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
    rows, held_out = np.arange(len(records)), np.empty(0, np.int64)
    if settings.patience:
        held_out, rows = np.split(
            shuffled(len(records), generator), [len(records) // 10]
        )
    steps = settings.steps or settings.epochs * len(
        batch_starts(len(rows), settings.batch_size)
    )
    losses, best = Losses(), Best(settings.patience)

    def loss_on(part: NDArray[np.int64]) -> Tensor:
        logits = forward(student, records.batch(part))
        return distillation_loss(
            logits, torch.from_numpy(ensemble.soft_labels(part)).to(logits.device)
        )

    for step, part in enumerate(_steps(rows, settings.batch_size, steps, generator), 1):
        loss = loss_on(part)
        descent.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        descent.step()
        losses.append((loss.detach(), len(part)))
        if len(held_out) and best.stops(
            step, student, lambda: _evaluated(student, loss_on, held_out, settings)
        ):
            break
    descent.zero_grad()
    best.load(student)
    return mean_loss(losses[-len(batch_starts(len(rows), settings.batch_size)) :])


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
        now = loss()
        if now < self.loss:
            self.step, self.loss, self.weights = step, now, flatten_state(student)
        return step - self.step >= self.patience

    def load(self, student: nn.Module) -> None:
        if self.weights:
            load_state(student, self.weights)


def _steps(
    rows: NDArray[np.int64], batch_size: int, steps: int, generator: torch.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield batches, epoch after epoch, for this number of steps."""
    epochs = (
        rows[part]
        for _ in itertools.count()
        for part in batches(len(rows), batch_size, generator)
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
        parts = np.array_split(rows, max(1, len(rows) // settings.batch_size))
        loss = sum(float(loss_on(part)) * len(part) for part in parts) / len(rows)
    student.train(settings.train_mode)
    return loss


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
    students, losses, settings = {}, [], config.distill
    for label in weights:
        student = networks.loaded(label, weights[label])
        generator = torch_stream(config.seed, "distill", label, round_)
        losses.append(distill(student, inputs(label), ensemble, settings, generator))
        students[label] = flatten_state(student)
    if not np.isfinite(losses).all():
        raise DivergedError(
            f"distillation diverged in round {round_}: lower distill.lr (of a "
            "strategy, distill_lr) and go on with `fedaux resume`"
        )
    return students, float(np.mean(losses))
