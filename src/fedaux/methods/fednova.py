"""FedNova (Wang et al. 2020, "Tackling the objective inconsistency problem"): averages
of normalised updates.

    d_i = (θ − θ_i) / ‖a_i‖₁,   θ ← θ − τ Σ p_i d_i,   τ = Σ p_i ‖a_i‖₁,   p_i = n_i / Σ
                                n

‖a_i‖₁ is how often client i's local steps count its gradients together: a client with
more steps no longer pulls harder. Clients send θ − d_i, which passes every check that a
model passes, and ‖a_i‖₁ next to it. The server learns τ and Σ p_i d_i as two means. If
all clients make equally many steps, this is FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedaux.core.arrays import Arrays
from fedaux.methods.hooks import ClientUpdate, Hooks, LocalWork, ModelVector


def accumulated(work: LocalWork) -> float:
    """‖a_i‖₁: by how many times lr·g the local steps move along a gradient g that never
    changes.

    SGD's momentum ρ adds past gradients again, FedProx's μ takes some of the way back.
    Without either it is the number of steps, so it is for Adam, whose steps do not grow
    with the gradient.
    """
    if work.optimizer == "adam":
        return float(work.steps)
    rho = work.momentum
    pull = work.lr * work.mu
    # of (way, velocity, 1), in units of lr·g
    step = np.array([[1 - pull, rho, 1], [-pull, rho, 1], [0, 0, 1]])
    all_steps = np.linalg.matrix_power(step, work.steps)
    return float(all_steps[0, 2])


@dataclass(frozen=True)
class FedNova(Hooks):
    half_precision = False  # τ multiplies the rounding of what clients send

    def client_update(
        self,
        start: ModelVector,
        trained: ModelVector,
        work: LocalWork,
        received: Arrays,
        state: Arrays,
    ) -> ClientUpdate:
        a = accumulated(work)
        normalised = start + (trained - start) / np.float32(a)
        return ClientUpdate(normalised, extra={"a": np.array([a], np.float32)})

    def server_step(
        self,
        theta: ModelVector,
        mean: ModelVector,
        extra: Arrays,
        fraction: float,
        state: Arrays,
    ) -> tuple[ModelVector, Arrays]:
        return theta + extra["a"] * (mean - theta), state
