"""The optimiser of local training, private or not, and gradients as one flat vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedaux.core.errors import unknown_name

OPTIMIZERS = ("adam", "sgd")
Losses = list[tuple[Tensor, int]]  # of batches, with their sizes; on the device, so that no step waits for it
Term = Callable[[Tensor], Tensor]  # of all parameters as one vector, (P,) → (P,)


@dataclass(frozen=True)
class Optimizer:
    """As an order names it: adam, or sgd with momentum. Weight decay is λθ added to the gradient, in both."""

    name: str = "adam"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise unknown_name("optimiser", self.name, OPTIMIZERS)

    def make(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        if self.name == "sgd":
            return torch.optim.SGD(parameters, self.lr, self.momentum, weight_decay=self.weight_decay)
        return torch.optim.Adam(parameters, self.lr, weight_decay=self.weight_decay)


def mean_loss(losses: Losses) -> float:
    """Over the records of all batches."""
    return sum(loss.item() * size for loss, size in losses) / sum(size for _, size in losses)


def flat(parameters: Sequence[nn.Parameter]) -> Tensor:
    """All parameters as one vector, a copy that knows of no graph."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])


def add_to_gradients(parameters: Sequence[nn.Parameter], vector: Tensor) -> None:
    """Add a flat vector to the gradients that there are; frozen parameters get none."""
    parts = vector.split([parameter.numel() for parameter in parameters])  # type: ignore[no-untyped-call]
    for parameter, part in zip(parameters, parts, strict=True):
        if parameter.requires_grad:
            shaped = part.view_as(parameter)
            parameter.grad = shaped if parameter.grad is None else parameter.grad + shaped
