"""FedDyn (Acar et al. 2021, "Federated learning based on dynamic regularization"), as a method of one's own.

    client i:   each step uses g_i(θ) − λ_i + α (θ − θ_t)
                λ_i ← λ_i − α (θ_i − θ_t)
    server:     h ← h − α |S|/N · (mean of θ_i − θ_t),   θ ← mean of θ_i − h/α

λ_i is what client i's gradient is where the last round left it; it stays with the client. No hook sees a record.
"""

from dataclasses import dataclass

import numpy as np

from fedaux import ClientUpdate, Hooks, Method


@dataclass(frozen=True)
class FedDyn(Hooks):
    alpha: float = 0.1  # an option of the method: `[method_options]` sets it

    weighted = False  # all clients count alike in the mean

    def server_state(self, theta):
        return {"h": np.zeros_like(theta)}

    def gradient_term(self, theta, start, received, state):
        pull = self.alpha * (theta - start)
        return pull - state["lambda"] if state else pull

    def client_update(self, start, trained, work, received, state):
        before = state.get("lambda", np.zeros_like(start))
        return ClientUpdate(trained, state={"lambda": before - self.alpha * (trained - start)})

    def server_step(self, theta, mean, extra, fraction, state):
        h = state["h"] - self.alpha * fraction * (mean - theta)
        return mean - h / self.alpha, {"h": h}


method = Method("FedDyn", hooks=FedDyn)
