"""SCAFFOLD (Karimireddy et al. 2020, "Stochastic controlled averaging", option II):
control variates both ways.

    client i:   each step uses g_i(y) − c_i + c
                c_i⁺ = c_i − c + (θ − y) / (K η_l)
    server:     θ ← θ + η_g · mean of (y − θ),   c ← c + |S|/N · mean of (c_i⁺ − c_i)

c is what the clients' gradients are on average, c_i what client i's are: their
difference takes the drift out of its steps. All clients count alike. c_i stays with the
client, in a file next to its account.

With momentum, K is FedNova's ‖a_i‖₁, so that c_i is still a mean gradient. With Adam
there is no such number: (θ − y) / (K η) would be a mean of normalised directions, and
says nothing of gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedaux.config.parsing import require
from fedaux.core.arrays import Arrays
from fedaux.methods.fednova import accumulated
from fedaux.methods.hooks import ClientUpdate, Hooks, LocalWork, ModelVector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Scaffold(Hooks):
    weighted = False
    keeps_state = True
    optimizers = ("sgd",)
    server_lr: float = 1.0  # η_g

    def __post_init__(self) -> None:
        require(
            self.server_lr > 0,
            "Cannot use these settings: method_options.server_lr must be above 0, not "
            f"{self.server_lr}. Correct it.",
        )

    def server_state(self, theta: ModelVector) -> Arrays:
        return {"c": np.zeros_like(theta)}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"c": state["c"]}

    def gradient_term(
        self,
        theta: Tensor,
        start: Tensor,
        received: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> Tensor:
        return received["c"] - state["c"] if state else received["c"]

    def client_update(
        self,
        start: ModelVector,
        trained: ModelVector,
        work: LocalWork,
        received: Arrays,
        state: Arrays,
    ) -> ClientUpdate:
        before = state.get("c", np.zeros_like(start))
        distance = np.float32(work.lr * accumulated(work))
        after = before - received["c"] + (start - trained) / distance
        return ClientUpdate(trained, extra={"c": after - before}, state={"c": after})

    def server_step(
        self,
        theta: ModelVector,
        mean: ModelVector,
        extra: Arrays,
        fraction: float,
        state: Arrays,
    ) -> tuple[ModelVector, Arrays]:
        c = state["c"] + fraction * extra["c"]
        return theta + self.server_lr * (mean - theta), {"c": c}
