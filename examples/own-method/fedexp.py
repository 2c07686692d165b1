"""FedExP (Jhunjhunwala et al. 2023, "Speeding up federated averaging via
extrapolation"), as a method of one's own.

    client i:   Δ_i = θ_i − θ; sends θ_i, and ‖Δ_i‖² beside it
    server:     η = max(1, Σ ‖Δ_i‖² / (2 M (‖Δ̄‖² + ε))),   θ ← θ + η Δ̄

Δ̄ is the mean of the M clients' Δ_i, all of which count alike. Where clients pull in
different directions Δ̄ is short, and the server goes further along it than FedAvg, for
which η = 1. No hook sees a record.
"""

from dataclasses import dataclass

import numpy as np

from fedaux import ClientUpdate, Hooks, Method


@dataclass(frozen=True)
class FedExP(Hooks):
    epsilon: float = 1e-3  # an option of the method: `[method_options]` sets it

    weighted = False  # all clients count alike in means

    def client_update(self, start, trained, work, received, state):
        squared = np.square(trained - start).sum(dtype=np.float32)
        return ClientUpdate(trained, extra={"squared": squared.reshape(1)})

    def server_step(self, theta, mean, extra, fraction, state):
        delta = mean - theta
        eta = max(
            1.0,
            float(extra["squared"][0]) / (2 * (float(delta @ delta) + self.epsilon)),
        )
        return theta + eta * delta, state


method = Method("FedExP", hooks=FedExP)
