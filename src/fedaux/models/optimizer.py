"""The optimiser of local training, private or not, and gradients as one flat vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedaux.core.errors import unknown_name

OPTIMIZERS = ("adam", "sgd")
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam, as PyTorch has them
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

    def make(self, parameters: Sequence[nn.Parameter]) -> Descent:
        return Descent(self, parameters)


class Descent:
    """`torch.optim.Adam` and `SGD` to the bit, by the functions that these classes call.

    The first step of a `torch.optim.Optimizer` imports PyTorch's compiler: a second in every new client process.
    """

    def __init__(self, settings: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self.settings, self.parameters = settings, parameters
        self._velocity: dict[nn.Parameter, Tensor | None] = {}  # SGD's
        self._moments: dict[nn.Parameter, tuple[Tensor, Tensor, Tensor]] = {}  # Adam's first and second; its steps

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Parameters without a gradient stay as they are."""
        s, trained = self.settings, [p for p in self.parameters if p.grad is not None]
        gradients = [p.grad for p in trained if p.grad is not None]
        if s.name == "sgd":
            velocity = [self._velocity.get(p) for p in trained]
            sgd(
                list(trained),
                gradients,
                velocity,
                lr=s.lr,
                weight_decay=s.weight_decay,
                momentum=s.momentum,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
            self._velocity.update(zip(trained, velocity, strict=True))
        elif trained:
            first, second, steps = map(list, zip(*map(self._moments_of, trained), strict=True))
            adam(
                list(trained),
                gradients,
                first,
                second,
                [],
                steps,
                lr=s.lr,
                weight_decay=s.weight_decay,
                beta1=BETAS[0],
                beta2=BETAS[1],
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )

    def _moments_of(self, parameter: nn.Parameter) -> tuple[Tensor, Tensor, Tensor]:
        if parameter not in self._moments:
            zeros = torch.zeros_like(parameter), torch.zeros_like(parameter)
            self._moments[parameter] = *zeros, torch.zeros((), device="cpu")
        return self._moments[parameter]


class StackedDescent:
    """The steps of `Optimizer.make` for many models at once: each row of `theta` holds the parameters of one."""

    def __init__(self, optimizer: Optimizer, theta: Tensor) -> None:
        self.optimizer, self.theta, self.steps = optimizer, theta, 0
        self.mean = torch.zeros_like(theta)  # of gradients; with SGD the momentum
        self.square = torch.zeros_like(theta) if optimizer.name == "adam" else theta

    def step(self, gradient: Tensor) -> None:
        """Move the first rows, as many as `gradient` has, which is overwritten. The others have finished."""
        lr, rho = self.optimizer.lr, self.optimizer.momentum
        theta, mean, square = (stack[: len(gradient)] for stack in (self.theta, self.mean, self.square))
        self.steps += 1
        if self.optimizer.weight_decay:
            gradient.add_(theta, alpha=self.optimizer.weight_decay)
        if self.optimizer.name == "sgd":
            theta.add_(mean.mul_(rho).add_(gradient) if rho else gradient, alpha=-lr)
            return
        mean.lerp_(gradient, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        scale = torch.sqrt(square, out=gradient).div_(math.sqrt(1 - BETAS[1] ** self.steps)).add_(EPSILON)
        theta.addcdiv_(mean, scale, value=-lr / (1 - BETAS[0] ** self.steps))


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
