"""T3: one student per prototype learns the ensemble's soft labels on D_distill."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.algorithms.aggregate import Ensemble
from fedaux.algorithms.learners import Learners
from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.messages import Arrays
from fedaux.core.rng import torch_stream
from fedaux.data.batching import batches
from fedaux.data.records import Records
from fedaux.models import flatten_state
from fedaux.models.compute import forward
from fedaux.models.optimizer import Losses, Optimizer, mean_loss


class DivergedError(FedauxError, ArithmeticError):
    """Training that left the real numbers; nothing of it is saved."""

    code = Exit.DIVERGED


def distillation_loss(student: Tensor, soft_labels: Tensor) -> Tensor:
    """Eq. 1: batch mean of KL(ỹ ‖ softmax(f(x))). student: logits (B, C); soft_labels: probabilities (B, C)."""
    return F.kl_div(F.log_softmax(student, dim=1), soft_labels, reduction="batchmean")


def distill(
    student: nn.Module,
    records: Records,
    ensemble: Ensemble,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    generator: torch.Generator,
) -> float:
    """Adam on KL(ỹ ‖ student); returns the mean loss of the last epoch.

    The student stays in eval mode: normalisation keeps the averaged statistics of the private data instead of drifting
    to those of the auxiliary data, and a row's prediction never depends on its batch.
    """
    student.eval()
    descent = Optimizer("adam", lr).make(list(student.parameters()))
    losses: Losses = []
    for _ in range(epochs):
        losses.clear()
        for rows in batches(len(records), batch_size, generator):
            logits = forward(student, records.batch(rows))
            soft_labels = torch.from_numpy(ensemble.soft_labels(rows)).to(logits.device)
            loss = distillation_loss(logits, soft_labels)
            descent.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            descent.step()
            losses.append((loss.detach(), len(rows)))
    descent.zero_grad()
    return mean_loss(losses)


def distill_students(
    learners: Learners,
    weights: dict[str, Arrays],
    inputs: Callable[[str], Records],
    ensemble: Ensemble,
    config: Config,
    round_: int,
) -> tuple[dict[str, Arrays], float]:
    """(one student per prototype, each from its own average and all from the one ensemble; their mean loss)."""
    students, losses, settings = {}, [], config.distill
    for label in weights:
        student = learners.loaded(label, weights[label])
        steps = {"epochs": settings.epochs, "batch_size": settings.batch_size}
        generator = torch_stream(config.seed, "distill", label, round_)
        losses.append(distill(student, inputs(label), ensemble, **steps, lr=settings.lr, generator=generator))
        students[label] = flatten_state(student)
    if not np.isfinite(losses).all():
        raise DivergedError(
            f"distillation diverged in round {round_}: lower distill.lr (of a strategy, distill_lr) and go on with "
            "`fedaux resume`"
        )
    return students, float(np.mean(losses))
