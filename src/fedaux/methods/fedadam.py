"""FedAdam and FedYogi (Reddi et al. 2021, "Adaptive federated optimization", algorithm
2): Adam at the server.

    Δ = θ̄ − θ
    m ← β₁ m + (1 − β₁) Δ
    v ← β₂ v + (1 − β₂) Δ²                      (FedAdam)
    v ← v − (1 − β₂) Δ² sign(v − Δ²)            (FedYogi)
    θ ← θ + η m / (√v + τ)

θ̄ is the mean of the clients' models, weighted by their records. v starts at τ², and
nothing corrects a bias, as there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedaux.config.parsing import require
from fedaux.core.arrays import Arrays
from fedaux.methods.hooks import Hooks, ModelVector


@dataclass(frozen=True)
class FedAdam(Hooks):
    server_lr: float = 0.01  # η
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3  # degree of adaptivity

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            require(
                0 <= value < 1,
                f"Cannot use these settings: method_options.{name} must be at least 0 "
                f"and below 1, not {value}. Correct it.",
            )
        require(
            self.server_lr > 0 and self.tau > 0,
            "Cannot use these settings: method_options.server_lr and "
            "method_options.tau must be above 0. Correct them.",
        )

    def server_state(self, theta: ModelVector) -> Arrays:
        return {"m": np.zeros_like(theta), "v": np.full_like(theta, self.tau**2)}

    def server_step(
        self,
        theta: ModelVector,
        mean: ModelVector,
        extra: Arrays,
        fraction: float,
        state: Arrays,
    ) -> tuple[ModelVector, Arrays]:
        delta = mean - theta
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = self.second_moment(state["v"], np.square(delta))
        theta = theta + self.server_lr * m / (np.sqrt(v) + self.tau)
        return theta, {"m": m, "v": v}

    def second_moment(self, v: ModelVector, squared: ModelVector) -> ModelVector:
        return self.beta2 * v + (1 - self.beta2) * squared


@dataclass(frozen=True)
class FedYogi(FedAdam):
    def second_moment(self, v: ModelVector, squared: ModelVector) -> ModelVector:
        return np.asarray(v - (1 - self.beta2) * squared * np.sign(v - squared))
