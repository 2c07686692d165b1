"""An order to train at a client, and the update that answers it, however the model was trained in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flwr.app import Context

from fedaux.algorithms.client_state import ClientState
from fedaux.algorithms.hooks import Hooks, LocalWork, Vector
from fedaux.algorithms.local_training import Trained
from fedaux.config.schema import Config
from fedaux.core.messages import Account, Arrays, TrainOrder, Update
from fedaux.flower.teaching import teach
from fedaux.models import Prototype, to_half
from fedaux.privacy.accounting import Mechanism
from fedaux.privacy.budget import BudgetStore

NOT_PRIVATE = Mechanism(noise_multiplier=0.0, steps=0)


@dataclass(frozen=True, eq=False)
class ClientTask:
    """An order to train that the client's own settings allow, with what the method kept from earlier rounds."""

    order: TrainOrder
    context: Context
    config: Config
    hooks: Hooks
    store: BudgetStore
    states: ClientState
    state: Arrays

    @property
    def start(self) -> Vector:
        """A copy of the ordered parameters."""
        return self.order.weights["parameters"].astype(np.float32)

    def update(
        self,
        model: Prototype,
        weights: Arrays,
        records: int,
        trained: Trained,
        seconds: float,
        mechanism: Mechanism = NOT_PRIVATE,
        account: Account | None = None,
    ) -> Update:
        """What the client sends: its trained `weights` as the method makes them. It keeps the method's new state."""
        order = self.order
        work = LocalWork(trained.steps, order.lr, order.optimizer, order.momentum, order.mu)
        sent = self.hooks.client_update(self.start, weights["parameters"], work, order.broadcast, self.state)
        if sent.state:
            self.states.save(order.last_round, order.round, sent.state)
        weights = {**weights, "parameters": sent.parameters}
        weights = to_half(weights) if order.weights["parameters"].dtype == "float16" else weights
        return Update(
            client=order.client,
            round=order.round,
            records=records,
            loss=trained.loss,
            seconds=seconds,
            noise=mechanism.noise_multiplier,
            rate=mechanism.sample_rate,
            steps=mechanism.steps,
            account=(account or self.store.account()).to_json(),
            weights=weights,
            extra=sent.extra,
            ensemble=teach(order, self.context, self.config, model, weights),
        )
