"""T1 with differential privacy: DP-SGD (Abadi et al. 2016) in exact integers from the
operating system's randomness.

Opacus draws its noise as floating-point numbers from PyTorch's generator, and computes
gradients of whole batches, in which a record's last bits depend on the batch. Here each
gradient is computed separately. The exact noise takes about 20 µs a parameter and step:
nothing for a head, seconds for a small network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaux.core.arrays import Vector
from fedaux.data.records import Indices, Records, is_text
from fedaux.models import Prototype
from fedaux.models.optimizer import Optimizer, Term, add_to_gradients, flat
from fedaux.privacy.accounting import Mechanism
from fedaux.privacy.mechanism import GRID, clip_rows, draw_noise, quantize
from fedaux.privacy.module_validation import validate_module
from fedaux.privacy.per_record import (
    Replicas,
    gradient,
    parallel_apply,
    replicate,
    validate_placement,
    verified,
)
from fedaux.privacy.units import Units

GridVector = NDArray[np.int64]  # in steps of clip/GRID


def clipped_unit_gradient(
    model: Prototype, records: Records, labels: Indices, rows: Indices, clip: float
) -> GridVector:
    """One unit's mean gradient, clipped to norm `clip`, in steps of clip/GRID: integers
    of norm at most GRID.

    A record whose label is not among the classes has no gradient, but counts in the
    mean.
    """
    total = np.zeros(_parameter_count(model))
    for row in rows:
        total += gradient(model, records, int(row), int(labels[row]))
    # vectors that are not finite are clipped to zero
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(quantize(clip_rows((total / len(rows) / clip)[None]))[0])


def sum_clipped_gradients(
    replicas: Replicas, records: Records, units: Sequence[Indices], clip: float
) -> GridVector:
    """Σ of `clipped_unit_gradient`: a unit moves it by its own integers, of norm at
    most GRID, and by nothing else.
    """
    zero, labels = np.zeros(_parameter_count(replicas[0]), np.int64), records.labels
    if not units:
        return zero

    def partial_sum(model: Any, share: Sequence[Indices]) -> GridVector:
        total = np.zeros(_parameter_count(model), np.int64)
        for rows in share:
            total += clipped_unit_gradient(model, records, labels, rows, clip)
        return total

    def first_gradient(model: Any) -> Vector:
        # a class that always exists
        return gradient(model, records, int(units[0][0]), label=0)

    with verified(replicas, first_gradient):
        return np.asarray(sum(parallel_apply(replicas, partial_sum, units), start=zero))


def train_private(
    model: Prototype,
    records: Records,
    units: Units,
    mechanism: Mechanism,
    *,
    size: int,
    clip: float,
    optimizer: Optimizer,
    term: Term | None = None,
    unsafe_seed: int = -1,
) -> None:
    """Train for `mechanism.steps` steps, each on the noisy sum over units sampled with
    probability `sample_rate`.

    `size` is the public number of units. Nothing else is derived from the records: no
    loss is returned. Which units are sampled is as secret as the noise, so it comes
    from the operating system too. A seed ≥ 0 makes both reproducible, and the promise
    void. What comes after the noise costs no privacy: the optimiser, and `term` of the
    parameters, which is added to the noisy gradient.
    """
    replicas = _private_replicas(model, records, units, clip)
    seeded = np.random.default_rng(unsafe_seed) if unsafe_seed >= 0 else None
    parameters = list(model.parameters())
    descent, scale = optimizer.make(parameters), mechanism.noise_multiplier * GRID
    for _ in range(mechanism.steps):
        drawn = (
            system_uniform(units.count)
            if seeded is None
            else seeded.random(units.count)
        )
        sampled = np.flatnonzero(drawn < mechanism.sample_rate)
        total = sum_clipped_gradients(
            replicas, records, [units.rows[unit] for unit in sampled], clip
        )
        total = draw_noise(total, scale, seeded)
        noisy = torch.from_numpy(
            total * (clip / (GRID * mechanism.sample_rate * size))
        ).float()
        descent.zero_grad()
        add_to_gradients(
            parameters, noisy if term is None else noisy + term(flat(parameters))
        )
        descent.step()
    descent.zero_grad()


def _private_replicas(
    model: Prototype, records: Records, units: Units, clip: float
) -> Replicas:
    """Validate that records can be computed one by one, and return copies of the model
    to do so in parallel.
    """
    validate_module(model, training=True)
    validate_placement(model)
    if is_text(records.x):
        raise ValueError(
            "whole networks for text are not trained privately. With head_only = "
            "true, fedaux trains heads on them."
        )
    model.train()

    def attempt(replica: Any) -> GridVector:
        return clipped_unit_gradient(
            replica, records, records.labels, units.rows[0], clip
        )

    return replicate(model, attempt, units.count)


def system_uniform(count: int) -> Vector:
    """Draw uniform numbers in [0, 1) with 53 bits from the operating system. A
    generator's state could be inferred.
    """
    return np.asarray(
        (np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(11)) * 2.0**-53,
        np.float64,
    )


def _parameter_count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
