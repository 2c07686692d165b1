"""T1 with differential privacy: DP-SGD (Abadi et al. 2016) in exact integers from the operating system's randomness.

Opacus draws its noise as floating-point numbers from PyTorch's generator, and is no faster than `torch.func` here. The
exact noise takes about 20 µs a parameter and step: nothing for a head, seconds for a small network.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedaux.data.records import Records, is_text
from fedaux.privacy.accounting import Spend
from fedaux.privacy.bounded import GRID, clip_rows, to_steps
from fedaux.privacy.gaussian import add_noise
from fedaux.prototypes import Prototype

Vector = NDArray[np.float64]
Steps = NDArray[np.int64]
_HELD = 2**24  # numbers of per-record gradients held at once


def check_private(model: nn.Module) -> None:
    """Refuse a network in which records of a batch see each other."""
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        raise ValueError(
            "privacy.train_epsilon cannot protect a network with BatchNorm, where a record's gradient depends on other "
            "records: set norm = 'group' in its prototype, or linear = true to train heads only"
        )


def record_gradients(model: Prototype, x: Tensor, labels: Tensor) -> Vector:
    """∇ of each record's cross-entropy by all parameters, flattened: (B, P). Each record passes the network alone.

    A label that is none of the classes has no gradient.
    """
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    known = (labels >= 0) & (labels < model.head.out_features)

    def loss(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, parameters, (row[None],)), label[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    found = each(parameters, x, torch.where(known, labels, 0))
    rows = torch.cat([found[name].flatten(1) for name in parameters], dim=1).double()
    return np.asarray(torch.where(known[:, None], rows, 0.0).numpy())


def clipped_sum(gradients: Iterator[Vector], clip: float, size: int) -> Steps:
    """Σ of gradients shortened to norm `clip`, in steps of clip/GRID: one record moves it by at most GRID in ℓ₂."""
    total = np.zeros(size, np.int64)
    for block in gradients:
        total += to_steps(clip_rows(block / clip)).sum(axis=0)
    return total


def train_private(
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
    check_private(model)
    if is_text(records.x):
        raise ValueError("whole networks for text are not trained privately; linear = true trains heads on them")
    model.train()
    rng = np.random.default_rng(unsafe_seed if unsafe_seed >= 0 else int.from_bytes(os.urandom(32)))
    parameters = list(model.parameters())
    anchor, sizes = [one.detach().clone() for one in parameters], [one.numel() for one in parameters]
    optimiser, scale = torch.optim.Adam(parameters, lr=lr), plan.noise * GRID
    for _ in range(plan.steps):
        drawn = np.flatnonzero(rng.random(len(records)) < plan.rate)
        total = clipped_sum(_gradients(model, records, drawn, max(1, _HELD // sum(sizes))), clip, sum(sizes))
        if unsafe_seed >= 0:
            total += np.rint(rng.normal(0.0, scale, total.shape)).astype(np.int64)
        else:
            total = add_noise(total, scale)
        gradient = torch.from_numpy(total * (clip / (GRID * plan.rate * size))).float()
        parts = gradient.split(sizes)  # type: ignore[no-untyped-call]
        for parameter, part, start in zip(parameters, parts, anchor, strict=True):
            parameter.grad = part.view_as(parameter) + mu * (parameter.detach() - start)
        optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def _gradients(model: Prototype, records: Records, drawn: NDArray[np.int64], block: int) -> Iterator[Vector]:
    for start in range(0, len(drawn), block):
        rows = drawn[start : start + block]
        yield record_gradients(model, records.batch(rows), torch.from_numpy(records.labels[rows]))
