"""What heads are trained on: features of h0, by default standardised with the mean and deviation of public ones.

Raw features are neither centred nor of one scale: a step along their common mean moves all logits at once, and no rate
fits every feature. With mean 0 and deviation 1 one rate fits all. The statistics are those of D⁻, so they are public.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.core.messages import Arrays
from fedaux.core.rng import seeded_torch

FLOOR = 0.01  # of the root mean square deviation: a feature that hardly varies in public is not blown up
SEED = 0  # of the random features: the same at the server and at every client


def standardisation(negatives: NDArray[np.floating]) -> Arrays:
    """Mean and deviation (H,) of the public features, (|D⁻|, H)."""
    mean = negatives.mean(axis=0, dtype=np.float64)
    deviation = negatives.std(axis=0, dtype=np.float64)
    least = FLOOR * np.sqrt(np.mean(np.square(deviation)))
    deviation = np.maximum(deviation, least) if least > 0 else np.ones_like(deviation)
    return {"mean": mean.astype(np.float32), "deviation": deviation.astype(np.float32)}


class HeadFeatures(nn.Module):
    """(B, H) → (B, width): h0's features as a head takes them. Fixed and public: no weight of it trains or travels.

    `random` > 0 makes so many random features of them, ReLU(A z + a) with A and a from a fixed seed.
    """

    mean: Tensor
    deviation: Tensor
    projection: Tensor
    offset: Tensor

    def __init__(self, inputs: int, random: int = 0) -> None:
        super().__init__()
        self.inputs, self.random, self.width, self.raw = inputs, random, random or inputs, True
        self.register_buffer("mean", torch.zeros(inputs), persistent=False)
        self.register_buffer("deviation", torch.ones(inputs), persistent=False)
        with seeded_torch(SEED):
            drawn = torch.randn(random, inputs) / inputs**0.5, torch.randn(random)
        self.register_buffer("projection", drawn[0], persistent=False)
        self.register_buffer("offset", drawn[1], persistent=False)

    def standardise(self, statistics: Arrays) -> None:
        """Take up the mean and deviation of `standardisation`; without them features stay raw."""
        self.raw = not statistics
        if self.raw:
            return
        shapes = {name: array.shape for name, array in statistics.items()}
        if shapes != {"mean": (self.inputs,), "deviation": (self.inputs,)}:
            raise ValueError(f"mean and deviation of {self.inputs} features are expected, not {shapes}")
        mean, deviation = (torch.tensor(statistics[name]) for name in ("mean", "deviation"))
        if not (mean.isfinite().all() and deviation.isfinite().all() and (deviation > 0).all()):
            raise ValueError("the mean and deviation of the features must be finite, and deviations above 0")
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    def forward(self, x: Tensor) -> Tensor:
        z = x if self.raw else (x - self.mean) / self.deviation
        return F.relu(F.linear(z, self.projection, self.offset)) if self.random else z

    def on_processor(self) -> HeadFeatures:
        """Itself, or a copy of it: heads of many clients train there, wherever one alone would."""
        if self.mean.device.type == "cpu":
            return self
        twin = HeadFeatures(self.inputs, self.random)
        twin.raw = self.raw
        for own, other in zip(twin.buffers(), self.buffers(), strict=True):
            own.copy_(other)
        return twin

    @torch.no_grad()
    def fold(self, head: nn.Linear) -> nn.Linear | nn.Sequential:
        """A head on h0's own features that gives what `head` gives on these: plain layers, without this one."""
        if not self.random:
            return self._on_raw(head.weight, head.bias)
        return nn.Sequential(self._on_raw(self.projection, self.offset), nn.ReLU(), head)

    @torch.no_grad()
    def unfold(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The reverse for a linear head on h0's own features: (weight, bias) of the same head on these."""
        if self.random:
            raise ValueError("a head on h0's own features has no equal on random features of them")
        if self.raw:
            return weight, bias
        weight, mean = weight.double(), self.mean.double()
        return (weight * self.deviation).to(self.mean.dtype), (bias + weight @ mean).to(self.mean.dtype)

    def _on_raw(self, weight: Tensor, bias: Tensor) -> nn.Linear:
        layer: nn.Linear = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0])  # type: ignore[no-untyped-call]  # draws nothing
        scaled = weight.double() if self.raw else weight.double() / self.deviation.double()
        layer.weight.copy_(scaled)
        layer.bias.copy_(bias if self.raw else bias.double() - scaled @ self.mean.double())
        return layer


def hidden_head(inputs: int, hidden: int, classes: int) -> nn.Sequential:
    """A head of the form that `HeadFeatures.fold` gives where features are random."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))
