"""B4: an epoch of T3 from the ensemble's integers, beside a loop by hand on soft labels
that are ready as a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import Row, compare
from benchmarks.teacher_pass import CASES, Case
from fedaux.config.distillation import DistillConfig
from fedaux.methods.contribution import Ensemble
from fedaux.server.distill import distill

EPOCH, BATCH, LR = 8, 128, 5e-5  # steps, rows a step, learning rate


def bare(student: nn.Module, inputs: Tensor, soft_labels: Tensor) -> float:
    """`inputs` as they are stored: uint8 images, or float rows."""
    optimiser = torch.optim.Adam(student.parameters(), lr=LR)
    order = torch.randperm(len(inputs))
    total = 0.0
    for rows in order.split(BATCH):
        x = inputs[rows]
        if x.dtype == torch.uint8:
            x = x.permute(0, 3, 1, 2).float().sub_(127.5).div_(63.75)
        loss = F.kl_div(
            F.log_softmax(student(x), dim=1), soft_labels[rows], reduction="batchmean"
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item() * len(rows)
    return total / len(inputs)


def rows() -> Iterator[Row]:
    for name, case in CASES.items():
        yield row(name, case)


def row(name: str, case: Case) -> Row:
    student = case.model()
    records = case.records(EPOCH * BATCH)
    logits = np.random.default_rng(1).normal(size=(len(records), 10)).astype(np.float32)
    ensemble = Ensemble.of(logits)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.from_numpy(records.x)
    soft_labels = torch.from_numpy(ensemble.soft_labels())
    student.eval()
    settings = DistillConfig(epochs=1, lr=LR, batch_size=BATCH)
    return compare(
        "B4",
        f"distillation step, {name} / by hand",
        1.02,
        lambda: distill(student, records, ensemble, settings, generator),
        lambda: bare(student, inputs, soft_labels),
    )
