"""T1: what a client does with the model it receives."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedaux.core.messages import Arrays
from fedaux.data.partition import batches
from fedaux.data.records import Records
from fedaux.methods.hooks import Hooks, Vector
from fedaux.models.compute import compute_of, forward
from fedaux.models.optimizer import Losses, Optimizer, Term, add_to_gradients, flat, mean_loss


class Trained(NamedTuple):
    loss: float  # mean over the records in the last epoch
    steps: int


def train_local(
    model: nn.Module,
    records: Records,
    *,
    epochs: int,
    batch_size: int,
    optimizer: Optimizer,
    generator: torch.Generator,
    term: Term | None = None,
    freeze_batch_norm: bool = False,
) -> Trained:
    """E epochs on cross-entropy; `term` of the parameters is added to every gradient.

    Frozen, BatchNorm normalises by the statistics that came with the model and keeps them; its weights are trained.
    """
    model.train()
    for module in model.modules() if freeze_batch_norm else ():
        if isinstance(module, _BatchNorm):
            module.eval()
    labels = compute_of(model).put(torch.from_numpy(np.ascontiguousarray(records.labels)))
    parameters = list(model.parameters())
    descent = optimizer.make(parameters)
    steps, losses = 0, Losses()
    for _ in range(epochs):
        losses.clear()
        for rows in batches(len(records), batch_size, generator):
            loss = F.cross_entropy(forward(model, records.batch(rows)), labels[rows])
            losses.append((loss.detach(), len(rows)))
            descent.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if term is not None:
                add_to_gradients(parameters, term(flat(parameters)))
            descent.step()
            steps += 1
    descent.zero_grad()  # the resident model must not keep a second model's worth of gradients
    return Trained(mean_loss(losses), steps)


def gradient_term(hooks: Hooks, mu: float, start: Vector, received: Arrays, state: Arrays) -> Term | None:
    """FedPROX's μ (θ − θ_t) and the method's own term as one function of θ; None where there is neither."""
    own = type(hooks).gradient_term is not Hooks.gradient_term
    if mu == 0 and not own:
        return None

    @cache
    def on(device: torch.device) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        return torch.tensor(start, device=device), _tensors(received, device), _tensors(state, device)

    def term(theta: Tensor) -> Tensor:
        anchor, sent, kept = on(theta.device)
        pull = mu * (theta - anchor)
        more = hooks.gradient_term(theta, anchor, sent, kept) if own else None
        return pull if more is None else pull + more

    return term


def _tensors(arrays: Arrays, device: torch.device) -> dict[str, Tensor]:
    return {
        name: torch.tensor(array, device=device) for name, array in arrays.items()
    }  # copied: a message's arrays are read-only
