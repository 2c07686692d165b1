"""An order to train at a client, and the update that answers it, however the model was trained in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedaux.client.kept_state import ClientState
from fedaux.client.local_training import gradient_term
from fedaux.client.site import Site
from fedaux.client.stored_results import LocalResult, ResultStore
from fedaux.client.teaching import teach
from fedaux.core.messages import Arrays, TrainOrder, Update
from fedaux.methods.hooks import Hooks, LocalWork, Vector
from fedaux.models import Prototype, to_half
from fedaux.models.optimizer import Term
from fedaux.privacy.account import BudgetStore


@dataclass(frozen=True, eq=False)
class ClientTask:
    """An order to train that the client's own settings allow, with what the method kept from earlier rounds."""

    order: TrainOrder
    site: Site
    hooks: Hooks
    store: BudgetStore
    results: ResultStore
    states: ClientState
    state: Arrays

    @property
    def start(self) -> Vector:
        """A copy of the ordered parameters."""
        return self.order.weights["parameters"].astype(np.float32)

    @property
    def term(self) -> Term | None:
        """What the method adds to every gradient, a function of the parameters."""
        return gradient_term(self.hooks, self.order.mu, self.start, self.order.broadcast, self.state)

    def update(self, result: LocalResult, model: Callable[[], Prototype]) -> Update:
        """What the client sends: its trained weights as the method makes them. It keeps the method's new state.

        `model` is asked for where the client runs it on public data.
        """
        order, trained, mechanism = self.order, result.trained, result.mechanism
        work = LocalWork(trained.steps, order.lr, order.optimizer, order.momentum, order.mu)
        sent = self.hooks.client_update(self.start, result.weights["parameters"], work, order.broadcast, self.state)
        if sent.state:
            self.states.save(order.last_round, order.round, sent.state)
        weights = {**result.weights, "parameters": sent.parameters}
        weights = to_half(weights) if order.weights["parameters"].dtype == "float16" else weights
        return Update(
            client=order.client,
            round=order.round,
            records=result.records,
            loss=trained.loss,
            seconds=result.seconds,
            noise=mechanism.noise_multiplier,
            rate=mechanism.sample_rate,
            steps=mechanism.steps,
            account=self.store.account().to_json(),
            weights=weights,
            extra=sent.extra,
            ensemble=teach(order, self.site, model(), weights) if order.teaching else {},
        )
