"""T1 with differential privacy: DP-SGD on a linear head (Abadi et al. 2016), in exact integers from OS randomness.

Opacus trains whole networks, but draws its noise as floating-point numbers from PyTorch's generator. A head on frozen
features has its per-record gradients in closed form, so exactness costs nothing but the noise: about 20 µs a number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from fedaux.data.records import Records
from fedaux.privacy.accounting import Spend
from fedaux.privacy.bounded import GRID, clip_rows, to_steps
from fedaux.privacy.gaussian import add_noise
from fedaux.prototypes import Prototype

Vector = NDArray[np.float64]
Steps = NDArray[np.int64]
_BLOCK = 256  # records whose gradients are held at once


def record_gradients(weight: Vector, bias: Vector, features: Vector, labels: NDArray[np.int64]) -> Vector:
    """∇ of each record's cross-entropy by (W, b), flattened: (B, C·H + C). weight: (C, H), features: (B, H)."""
    error = softmax(features @ weight.T + bias, axis=1)
    error[np.arange(len(labels)), labels] -= 1.0
    outer = error[:, :, None] * features[:, None, :]
    return np.concatenate([outer.reshape(len(labels), -1), error], axis=1)


def clipped_sum(gradients: Iterator[Vector], clip: float, size: int) -> Steps:
    """Σ of gradients shortened to norm `clip`, in steps of clip/GRID: one record moves it by at most GRID in ℓ₂."""
    total = np.zeros(size, np.int64)
    for block in gradients:
        total += to_steps(clip_rows(block / clip)).sum(axis=0)
    return total


def train_private_head(
    model: Prototype,
    records: Records,
    plan: Spend,
    *,
    size: int,
    lr: float,
    mu: float,
    clip: float,
    unsafe_seed: int = -1,
) -> None:
    """`plan.steps` steps of Adam. Each draws every record with probability `plan.rate`, and adds noise to the sum.

    `size` is |D_i| as the world knows it. Nothing else is derived from the records: no loss is returned. The draw of
    records is as secret as the noise, so it comes from the operating system too; a seed ≥ 0 makes both repeatable, and
    the promise void. FedPROX's term needs no record, and is added after the noise.
    """
    rng = np.random.default_rng(unsafe_seed if unsafe_seed >= 0 else int.from_bytes(os.urandom(32)))
    head, anchor = model.head, [parameter.detach().clone() for parameter in model.head.parameters()]
    optimiser, scale = torch.optim.Adam(head.parameters(), lr=lr), plan.noise * GRID
    for _ in range(plan.steps):
        drawn = np.flatnonzero(rng.random(len(records)) < plan.rate)
        total = clipped_sum(_gradients(model, records, drawn), clip, head.weight.numel() + head.bias.numel())
        if unsafe_seed >= 0:
            total += np.rint(rng.normal(0.0, scale, total.shape)).astype(np.int64)
        else:
            total = add_noise(total, scale)
        gradient = torch.from_numpy(total * (clip / (GRID * plan.rate * size))).float()
        parts = gradient.split([head.weight.numel(), head.bias.numel()])  # type: ignore[no-untyped-call]
        for parameter, part, start in zip(head.parameters(), parts, anchor, strict=True):
            parameter.grad = part.view_as(parameter) + mu * (parameter.detach() - start)
        optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def _gradients(model: Prototype, records: Records, drawn: NDArray[np.int64]) -> Iterator[Vector]:
    weight, bias = (parameter.detach().double().numpy() for parameter in model.head.parameters())
    for start in range(0, len(drawn), _BLOCK):
        rows = drawn[start : start + _BLOCK]
        features = np.asarray(records.gather(rows), np.float64)
        yield record_gradients(weight, bias, features, records.labels[rows])
