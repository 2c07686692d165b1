"""T3: one student per prototype learns the ensemble's soft labels on D_distill."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import islice

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
from fedaux.data.batching import batch_starts, batches
from fedaux.data.records import Indices, Records
from fedaux.models import flatten_state, load_state
from fedaux.models.compute import forward
from fedaux.models.inference import predict
from fedaux.models.optimizer import Losses, Optimizer, mean_loss

COMPARED = 1024  # public examples, at most, on which two starts are compared


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
    steps: int = 0,
    patience: int = 0,
) -> float:
    """Adam on KL(ỹ ‖ student), for so many steps or else epochs; returns the mean loss of the last epoch.

    The student stays in eval mode: normalisation keeps the averaged statistics of the private data instead of drifting
    to those of the auxiliary data, and a row's prediction never depends on its batch.

    With `patience`, a tenth of the examples is held out. After so many epochs without a lower loss on them it stops,
    and the student is what it was when that loss was lowest. Examples and soft labels are public: no label is used.
    """
    student.eval()
    descent = Optimizer("adam", lr).make(list(student.parameters()))
    trained = np.arange(len(records))
    if patience:
        order = torch.randperm(len(records), generator=generator).numpy()
        held_out, trained = np.split(order, [max(1, len(records) // 10)])
        lowest, best, waited = public_loss(student, records, ensemble, held_out), flatten_state(student), 0
    losses: Losses = []
    left = steps or epochs * len(batch_starts(len(trained), batch_size))
    while left > 0 and not (patience and waited == patience):
        losses.clear()
        for batch in islice(batches(len(trained), batch_size, generator), left):
            left, rows = left - 1, trained[batch]
            logits = forward(student, records.batch(rows))
            soft_labels = torch.from_numpy(ensemble.soft_labels(rows)).to(logits.device)
            loss = distillation_loss(logits, soft_labels)
            descent.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            descent.step()
            losses.append((loss.detach(), len(rows)))
        if patience:
            loss_now, waited = public_loss(student, records, ensemble, held_out), waited + 1
            if loss_now < lowest:
                lowest, best, waited = loss_now, flatten_state(student), 0
    descent.zero_grad()
    if patience:
        load_state(student, best)
    return mean_loss(losses)


def public_loss(student: nn.Module, records: Records, ensemble: Ensemble, rows: Indices) -> float:
    """`distillation_loss` on these examples."""
    logits = torch.from_numpy(predict(student, records.take(rows)))
    return distillation_loss(logits, torch.from_numpy(ensemble.soft_labels(rows))).item()


def starts(
    learners: Learners,
    averages: dict[str, Arrays],
    students: dict[str, Arrays],
    inputs: Callable[[str], Records],
    ensemble: Ensemble,
    which: str,
) -> dict[str, Arrays]:
    """What each student starts from: the round's average, its last self, or whichever is closer to the ensemble."""
    if which != "better":
        return averages if which == "average" else students

    def loss(label: str, weights: Arrays) -> float:
        records = inputs(label)
        some = np.arange(0, len(records), math.ceil(len(records) / COMPARED))
        return public_loss(learners.loaded(label, weights), records, ensemble, some)

    pairs = {label: (averages[label], students[label]) for label in averages}
    return {label: min(pair, key=partial(loss, label)) for label, pair in pairs.items()}


def distill_students(
    learners: Learners,
    weights: dict[str, Arrays],
    inputs: Callable[[str], Records],
    ensemble: Ensemble,
    config: Config,
    round_: int,
) -> tuple[dict[str, Arrays], float]:
    """(one student per prototype, each from its own weights and all from the one ensemble; their mean loss)."""
    students, losses, settings = {}, [], config.distill
    for label in weights:
        student = learners.loaded(label, weights[label])
        steps = {name: getattr(settings, name) for name in ("epochs", "batch_size", "steps", "patience")}
        generator = torch_stream(config.seed, "distill", label, round_)
        losses.append(distill(student, inputs(label), ensemble, **steps, lr=settings.lr, generator=generator))
        students[label] = flatten_state(student)
    if not np.isfinite(losses).all():
        raise DivergedError(
            f"distillation diverged in round {round_}: lower distill.lr (of a strategy, distill_lr) and go on with "
            "`fedaux resume`"
        )
    return students, float(np.mean(losses))
