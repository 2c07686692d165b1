"""FedAvgM (Hsu, Qi, Brown 2019, "Measuring the effects of non-identical data
distribution"): momentum at the server.

    v ← β v + (θ − θ̄),   θ ← θ − η v

θ̄ is the mean of the clients' models, weighted by their records. β = 0 and η = 1 are
FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedaux.config.parsing import require
from fedaux.core.arrays import Arrays
from fedaux.methods.hooks import Hooks, ModelVector


@dataclass(frozen=True)
class FedAvgM(Hooks):
    beta: float = 0.9  # momentum
    server_lr: float = 1.0  # η

    def __post_init__(self) -> None:
        require(
            0 <= self.beta < 1,
            "Cannot use these settings: method_options.beta must be at least 0 and "
            f"below 1, not {self.beta}. Correct it.",
        )
        require(
            self.server_lr > 0,
            "Cannot use these settings: method_options.server_lr must be above 0, not "
            f"{self.server_lr}. Correct it.",
        )

    def server_state(self, theta: ModelVector) -> Arrays:
        return {"v": np.zeros_like(theta)}

    def server_step(
        self,
        theta: ModelVector,
        mean: ModelVector,
        extra: Arrays,
        fraction: float,
        state: Arrays,
    ) -> tuple[ModelVector, Arrays]:
        v = self.beta * state["v"] + (theta - mean)
        return theta - self.server_lr * v, {"v": v}
