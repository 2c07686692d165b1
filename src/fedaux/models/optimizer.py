"""The optimiser of local training, private or not, and gradients as one flat vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedaux.config.sections import OPTIMIZERS
from fedaux.core.errors import unknown_name

# of Adam, as PyTorch has them
BETAS = (0.9, 0.999)
EPSILON = 1e-8
# of batches, with their sizes; on the device, so that no step waits for it
Losses = list[tuple[Tensor, int]]
Term = Callable[[Tensor], Tensor]  # of all parameters as one vector, (P,) → (P,)


@dataclass(frozen=True)
class Optimizer:
    """The optimiser that an order names: adam, or sgd with momentum. In both, weight
    decay adds λθ to the gradient.
    """

    name: str = "adam"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise unknown_name("optimiser", self.name, OPTIMIZERS)

    def make(self, parameters: Sequence[nn.Parameter]) -> Descent:
        return Descent(self, parameters)


# Why there is an optimiser of ours: Flower starts a new process for each order, and at
# its first step `torch.optim` imports PyTorch's compiler, which takes a second. On a
# processor it also takes each tensor separately, which for a small network costs more
# than the arithmetic. Whatever trains or distils in a round takes this one. Pre-training
# has neither problem: it takes PyTorch's own (`models/pretraining/trainer.py`).
class Descent:
    """`torch.optim.Adam` and `SGD` bit for bit, all tensors at a time."""

    def __init__(self, settings: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self.settings = settings
        self.parameters = parameters
        # mean of gradients; with SGD the momentum
        self._first: dict[Tensor, Tensor] = {}
        self._second: dict[Tensor, Tensor] = {}  # mean of their squares
        self._steps: dict[Tensor, int] = {}

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Parameters without a gradient stay as they are."""
        s = self.settings
        theta = list[Tensor](p for p in self.parameters if p.grad is not None)
        if not theta:
            return
        gradient = [p.grad for p in theta if p.grad is not None]
        if s.weight_decay:
            gradient = list(torch._foreach_add(gradient, theta, alpha=s.weight_decay))
        if s.name == "adam":
            self._adam(theta, gradient)
            return
        if s.momentum:
            velocity = self._moments(self._first, theta)
            torch._foreach_mul_(velocity, s.momentum)
            torch._foreach_add_(velocity, gradient)
            gradient = velocity
        torch._foreach_add_(theta, gradient, alpha=-s.lr)

    def _adam(self, theta: list[Tensor], gradient: list[Tensor]) -> None:
        mean = self._moments(self._first, theta)
        square = self._moments(self._second, theta)
        self._steps.update({p: self._steps.get(p, 0) + 1 for p in theta})
        steps = [self._steps[p] for p in theta]
        torch._foreach_lerp_(mean, gradient, 1 - BETAS[0])
        torch._foreach_mul_(square, BETAS[1])
        torch._foreach_addcmul_(square, gradient, gradient, 1 - BETAS[1])
        scale = torch._foreach_sqrt(square)
        torch._foreach_div_(scale, [math.sqrt(1 - BETAS[1] ** step) for step in steps])
        torch._foreach_add_(scale, EPSILON)
        rates = [-self.settings.lr / (1 - BETAS[0] ** step) for step in steps]
        torch._foreach_addcdiv_(theta, mean, scale, rates)

    def _moments(self, kept: dict[Tensor, Tensor], theta: list[Tensor]) -> list[Tensor]:
        for parameter in theta:
            if parameter not in kept:
                kept[parameter] = torch.zeros_like(parameter)
        return [kept[parameter] for parameter in theta]


class StackedDescent:
    """The steps of `Optimizer.make` for many models at once: each row of `theta` holds
    the parameters of one.
    """

    def __init__(self, optimizer: Optimizer, theta: Tensor) -> None:
        self.optimizer = optimizer
        self.theta = theta
        self.steps = 0
        self.mean = torch.zeros_like(theta)  # of gradients; with SGD the momentum
        self.square = torch.zeros_like(theta) if optimizer.name == "adam" else theta

    def step(self, gradient: Tensor) -> None:
        """Update the first `len(gradient)` rows, overwriting `gradient`. The other rows
        have finished.
        """
        lr = self.optimizer.lr
        rho = self.optimizer.momentum
        count = len(gradient)
        theta = self.theta[:count]
        mean = self.mean[:count]
        square = self.square[:count]
        self.steps += 1
        if self.optimizer.weight_decay:
            gradient.add_(theta, alpha=self.optimizer.weight_decay)
        if self.optimizer.name == "sgd":
            if rho:
                gradient = mean.mul_(rho).add_(gradient)
            theta.add_(gradient, alpha=-lr)
            return
        mean.lerp_(gradient, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        scale = torch.sqrt(square, out=gradient)
        scale.div_(math.sqrt(1 - BETAS[1] ** self.steps)).add_(EPSILON)
        theta.addcdiv_(mean, scale, value=-lr / (1 - BETAS[0] ** self.steps))


def mean_loss(losses: Losses) -> float:
    """Over the records of all batches."""
    total = sum(loss.item() * size for loss, size in losses)
    return total / sum(size for _, size in losses)


def flat(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return a detached copy of all parameters as one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])


def add_to_gradients(parameters: Sequence[nn.Parameter], vector: Tensor) -> None:
    """Add a flat vector to the gradients that there are; frozen parameters get none."""
    parts = vector.split([parameter.numel() for parameter in parameters])  # type: ignore[no-untyped-call]
    for parameter, part in zip(parameters, parts, strict=True):
        if parameter.requires_grad:
            gradient = part.view_as(parameter)
            if parameter.grad is not None:
                gradient = parameter.grad + gradient
            parameter.grad = gradient
