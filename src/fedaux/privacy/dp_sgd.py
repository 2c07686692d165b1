"""T1 with differential privacy: DP-SGD (Abadi et al. 2016) in exact integers from the operating system's randomness.

Opacus draws its noise as floating-point numbers from PyTorch's generator, and takes gradients of whole batches, in
which a record's last bits depend on how many there are. Here each gradient is taken alone. The exact noise takes about
20 µs a parameter and step: nothing for a head, seconds for a small network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaux.data.records import Indices, Records, is_text
from fedaux.models import Prototype
from fedaux.models.optimizer import Optimizer, Term, add_to_gradients, flat
from fedaux.privacy.accounting import Spend
from fedaux.privacy.apart import check_records_apart
from fedaux.privacy.clipping import GRID, clip_rows, to_steps
from fedaux.privacy.gaussian import add_noise
from fedaux.privacy.per_record import Crew, crew, gradient, share_out
from fedaux.privacy.units import Units

Vector = NDArray[np.float64]
Steps = NDArray[np.int64]


def unit_steps(model: Prototype, records: Records, labels: Indices, rows: Indices, clip: float) -> Steps:
    """One unit's mean gradient, shortened to norm `clip`, in steps of clip/GRID: integers of norm at most GRID.

    A record whose label is none of the classes has no gradient, and counts in the mean.
    """
    total = np.zeros(sum(one.numel() for one in model.parameters()))
    for row in rows:
        total += gradient(model, records, int(row), int(labels[row]))
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is clipped to nothing
        return np.asarray(to_steps(clip_rows((total / len(rows) / clip)[None]))[0])


def summed_steps(workers: Crew, records: Records, units: Sequence[Indices], clip: float) -> Steps:
    """Σ of `unit_steps`: one unit moves it by its own integers, which have norm at most GRID, and by nothing else."""
    labels = records.labels

    def summed(model: Any, part: Sequence[Indices]) -> Steps:
        total = np.zeros(sum(one.numel() for one in model.parameters()), np.int64)
        for rows in part:
            total += unit_steps(model, records, labels, rows, clip)
        return total

    empty = np.zeros(sum(one.numel() for one in workers[0].parameters()), np.int64)
    return np.asarray(sum(share_out(workers, summed, units), start=empty))


def train_private(
    model: Prototype,
    records: Records,
    units: Units,
    plan: Spend,
    *,
    size: int,
    clip: float,
    optimizer: Optimizer,
    term: Term | None = None,
    unsafe_seed: int = -1,
) -> None:
    """`plan.steps` steps. Each draws every unit with probability `plan.rate`, and adds noise to the sum.

    `size` is the number of units as the world knows it. Nothing else is derived from the records: no loss is returned.
    The draw of units is as secret as the noise, so it comes from the operating system too; a seed ≥ 0 makes both
    repeatable, and the promise void. What comes after the noise costs no privacy: the optimiser, and `term` of the
    parameters, which is added to the noisy gradient.
    """
    check_records_apart(model, training=True)
    if is_text(records.x):
        raise ValueError("whole networks for text are not trained privately; head_only = true trains heads on them")
    model.train()
    rng = np.random.default_rng(unsafe_seed if unsafe_seed >= 0 else int.from_bytes(os.urandom(32)))
    parameters = list(model.parameters())
    descent, scale = optimizer.make(parameters), plan.noise * GRID
    workers = crew(model, lambda one: summed_steps([one], records, units.rows[:1], clip), units.count)
    for _ in range(plan.steps):
        drawn = np.flatnonzero(rng.random(units.count) < plan.rate)
        total = summed_steps(workers, records, [units.rows[one] for one in drawn], clip)
        if unsafe_seed >= 0:
            total += np.rint(rng.normal(0.0, scale, total.shape)).astype(np.int64)
        else:
            total = add_noise(total, scale)
        noisy = torch.from_numpy(total * (clip / (GRID * plan.rate * size))).float()
        descent.zero_grad(set_to_none=True)
        add_to_gradients(parameters, noisy if term is None else noisy + term(flat(parameters)))
        descent.step()
    descent.zero_grad(set_to_none=True)
