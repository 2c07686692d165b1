"""T3: one student per prototype learns the ensemble's soft labels on D_distill."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

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
from fedaux.data.partition import batch_starts, batches
from fedaux.data.records import Records
from fedaux.methods.contribution import Ensemble
from fedaux.models import flatten_state
from fedaux.models.compute import forward
from fedaux.models.optimizer import Losses, Optimizer, mean_loss
from fedaux.server.networks import Networks


class DivergedError(FedauxError, ArithmeticError):
    """Training produced NaN or infinity. Nothing of it is saved."""

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
    steps: int,
    generator: torch.Generator,
) -> float:
    """Minimise KL(ỹ ‖ student) in so many steps, and return the mean loss of the last
    epoch.

    The student stays in eval mode, unless told otherwise: normalisation keeps the
    averaged statistics of the private data instead of drifting to those of the
    auxiliary data, and a row's prediction never depends on its batch.
    """
    student.train(settings.train_mode)
    descent = Optimizer(lr=settings.lr).make(list(student.parameters()))
    batches_per_epoch = len(batch_starts(len(records), settings.batch_size))
    losses = Losses()
    for rows in _steps(len(records), settings.batch_size, steps, generator):
        logits = forward(student, records.batch(rows))
        soft_labels = torch.from_numpy(ensemble.soft_labels(rows))
        loss = distillation_loss(logits, soft_labels.to(logits.device))
        descent.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        descent.step()
        losses.append((loss.detach(), len(rows)))
    descent.zero_grad()
    return mean_loss(losses[-batches_per_epoch:])


def _steps(
    count: int, batch_size: int, steps: int, generator: torch.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield batches, epoch after epoch, for this number of steps."""
    endless = (
        rows
        for _ in itertools.count()
        for rows in batches(count, batch_size, generator)
    )
    return itertools.islice(endless, steps)


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
        records = inputs(label)
        batches_per_epoch = len(batch_starts(len(records), config.distill.batch_size))
        steps = config.distill_steps(round_, batches_per_epoch)
        loss = distill(student, records, ensemble, config.distill, steps, generator)
        losses.append(loss)
        students[label] = flatten_state(student)
    if not np.isfinite(losses).all():
        raise DivergedError(
            f"Cannot continue: distillation diverged in round {round_}. Lower "
            "distill.lr (of a strategy, distill_lr) and continue with `fedaux resume`."
        )
    return students, float(np.mean(losses))
