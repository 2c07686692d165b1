"""T1: what a client does with the model it receives."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fedaux.algorithms.losses import proximal_term
from fedaux.data.batching import batches
from fedaux.data.records import Records


def train_local(
    model: nn.Module,
    records: Records,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    mu: float,
    generator: torch.Generator,
) -> float:
    """E epochs of Adam on cross-entropy, plus FedPROX's term where μ > 0. Returns the mean loss of the last epoch."""
    model.train()
    labels = torch.from_numpy(np.ascontiguousarray(records.labels))
    parameters = list(model.parameters())
    anchor = [p.detach().clone() for p in parameters] if mu > 0 else []
    optimiser = torch.optim.Adam(parameters, lr=lr)
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for rows in batches(len(records), batch_size, generator):
            loss = F.cross_entropy(model(records.batch(rows)), labels[rows])
            total += loss.item() * len(rows)
            if mu > 0:
                loss = loss + proximal_term(parameters, anchor, mu)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    optimiser.zero_grad(set_to_none=True)  # the resident model must not keep a second model's worth of gradients
    return total / len(records)
