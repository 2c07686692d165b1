"""T1: what a client does with the model it receives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaux.algorithms.hooks import Hooks, Vector
from fedaux.core.messages import Arrays
from fedaux.data.batching import batches
from fedaux.data.records import Records
from fedaux.models.optimizer import Optimizer, Term, add_to_gradients, flat


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
) -> Trained:
    """E epochs on cross-entropy; `term` of the parameters is added to every gradient."""
    model.train()
    labels = torch.from_numpy(np.ascontiguousarray(records.labels))
    parameters = list(model.parameters())
    descent = optimizer.make(parameters)
    total, steps = 0.0, 0
    for _ in range(epochs):
        total = 0.0
        for rows in batches(len(records), batch_size, generator):
            loss = F.cross_entropy(model(records.batch(rows)), labels[rows])
            total += loss.item() * len(rows)
            descent.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if term is not None:
                add_to_gradients(parameters, term(flat(parameters)))
            descent.step()
            steps += 1
    descent.zero_grad()  # the resident model must not keep a second model's worth of gradients
    return Trained(total / len(records), steps)


def gradient_term(hooks: Hooks, mu: float, start: Vector, received: Arrays, state: Arrays) -> Term | None:
    """FedPROX's μ (θ − θ_t) and the method's own term as one function of θ; None where there is neither."""
    own = type(hooks).gradient_term is not Hooks.gradient_term
    if mu == 0 and not own:
        return None
    anchor, sent, kept = torch.tensor(start), _tensors(received), _tensors(state)

    def term(theta: Tensor) -> Tensor:
        pull = mu * (theta - anchor)
        more = hooks.gradient_term(theta, anchor, sent, kept) if own else None
        return pull if more is None else pull + more

    return term


def _tensors(arrays: Arrays) -> dict[str, Tensor]:
    return {name: torch.tensor(array) for name, array in arrays.items()}  # copied: a message's arrays are read-only
