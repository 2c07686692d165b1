"""FedDyn (Acar et al. 2021, "Federated learning based on dynamic regularization",
algorithm 1).

    client i:   θ_i minimises  L_i(θ) − ⟨g_i, θ⟩ + α/2 ‖θ − θ_t‖²:  each step uses
                ∇L_i(θ) − g_i + α (θ − θ_t)
                g_i ← g_i − α (θ_i − θ_t)
    server:     h ← h − α |S|/N · mean of (θ_i − θ_t)
                θ ← mean of θ_i − h/α

At its minimum client i's gradient is g_i, so where the rounds come to rest the
gradients of all clients add up to zero: a stationary point of the common loss, however
different the clients are. All of them count alike. g_i stays with the client, in a file
next to its account. Nothing is sent next to the models.

The paper's proof has exact local minima. Its experiments take some epochs of SGD, and
so does this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedaux.config.parsing import require
from fedaux.core.arrays import Arrays
from fedaux.methods.hooks import ClientUpdate, Hooks, LocalWork, ModelVector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FedDyn(Hooks):
    weighted = False
    keeps_state = True
    half_precision = False  # h/α multiplies the rounding of what clients send
    alpha: float = 0.1  # α: how strongly a client is held to the model it received

    def __post_init__(self) -> None:
        require(
            self.alpha > 0,
            "Cannot use these settings: method_options.alpha must be above 0, not "
            f"{self.alpha}. Correct it.",
        )

    def server_state(self, theta: ModelVector) -> Arrays:
        return {"h": np.zeros_like(theta)}

    def gradient_term(
        self,
        theta: Tensor,
        start: Tensor,
        received: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> Tensor:
        pull = self.alpha * (theta - start)
        return pull - state["g"] if state else pull

    def client_update(
        self,
        start: ModelVector,
        trained: ModelVector,
        work: LocalWork,
        received: Arrays,
        state: Arrays,
    ) -> ClientUpdate:
        before = state.get("g", np.zeros_like(start))
        return ClientUpdate(
            trained, state={"g": before - np.float32(self.alpha) * (trained - start)}
        )

    def server_step(
        self,
        theta: ModelVector,
        mean: ModelVector,
        extra: Arrays,
        fraction: float,
        state: Arrays,
    ) -> tuple[ModelVector, Arrays]:
        h = state["h"] - self.alpha * fraction * (mean - theta)
        return mean - h / self.alpha, {"h": h}
