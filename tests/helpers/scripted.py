"""A small server without data of anybody's, and a federation that answers its orders
from a script.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedaux import Config
from fedaux.config.distillation import DistillConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.accounts import Account
from fedaux.core.failures import Failure
from fedaux.data.records import Records
from fedaux.messages import (
    Consent,
    Order,
    PlanOrder,
    PrepareOrder,
    Release,
    Reply,
    TrainOrder,
    Update,
)
from fedaux.privacy.mechanism import multiplier
from fedaux.server.run_state import RunState
from fedaux.server.server import Server

CLIENTS = ("a", "b", "c", "d")
# with buffers and counters
MLP = PrototypeSpec.of("mlp", hidden=8, features=6, norm="batch")
WIDE = PrototypeSpec.of("mlp", hidden=8, features=8)
CONFIG = Config(
    rounds=2,
    prototypes=(MLP,),
    data=DataConfig(clients=len(CLIENTS)),
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(batch_size=10),
    distill=DistillConfig(epochs=1),
    privacy=PrivacyConfig(scorer="logistic", epsilon=1.0),
    federation=FederationConfig(quorum=0.5),
)
Answer = Callable[[Order], Reply | None]  # None: silence


def make_server(
    config: Config = CONFIG, cache: Path | None = None, state: RunState | None = None
) -> Server:
    """Rows of four numbers in three classes; features of public rows stay in memory."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    test = Records(
        (np.eye(3, 4)[labels] + 0.1 * rng.normal(size=(60, 4))).astype(np.float32),
        labels,
    )
    aux = Records(rng.normal(size=(50, 4)).astype(np.float32))
    clients, known = (
        config.federation.sites or CLIENTS,
        state.assignment if state else {},
    )
    server = Server.of(config, aux, test, 3, clients, cache or Path(), known=known)
    return server if cache else replace(server, cache=None)


def account(entries: int = 1) -> str:
    return Account(0.5, 1e-5, "replace-one", "record", entries).to_json()


def release(order: PrepareOrder, **changes: Any) -> Release:
    """A release of its own for every client: as many integers as are asked for, with
    the noise of its budget.
    """
    values = np.random.default_rng([*order.client.encode()]).integers(
        -(2**20), 2**20, order.size
    )
    sensitivity, records = 2.0**21, 10 * len(order.client)
    noise = multiplier(1.0, 1e-5, "analytic", order.size, sensitivity) * sensitivity
    facts = (
        "logistic",
        records,
        1.0,
        1e-5,
        "replace-one",
        "analytic",
        sensitivity,
        noise,
        2.0**-21,
        False,
    )
    return replace(
        Release(order.client, *facts, account(), {"values": values}), **changes
    )


def update(order: TrainOrder, **changes: Any) -> Update:
    """A model of its own for every client, a step away from the one that was sent."""
    rng = np.random.default_rng([*order.client.encode(), order.round])
    weights = {
        name: array + rng.normal(0, 0.1, array.shape).astype(array.dtype)
        if array.dtype.kind == "f"
        else array + 7
        for name, array in order.weights.items()
    }
    facts = {
        "records": 20 + ord(order.client[0]),
        "loss": 1.0,
        "seconds": 0.1,
        "noise": 0.0,
        "rate": 1.0,
        "steps": 0,
    }
    found = Update(
        order.client, order.round, **facts, account=account(), weights=weights
    )  # type: ignore[arg-type]
    return replace(found, **changes)


def honest(order: Order) -> Reply:
    if isinstance(order, PlanOrder):
        return Consent(order.client, order.plan_hash, "approved")
    return release(order) if isinstance(order, PrepareOrder) else update(order)


def fails(kind: type[Order], *rounds: int) -> Answer:
    """Honest, but for orders of this kind: all of them, or those of some rounds."""

    def answer(order: Order) -> Reply | None:
        now = not rounds or (isinstance(order, TrainOrder) and order.round in rounds)
        return (
            Failure(order.client, "out of order")
            if isinstance(order, kind) and now
            else honest(order)
        )

    return answer


@dataclass
class Scripted:
    """`script` says how a client answers where it is not honest; `arrival` in which
    order replies come.
    """

    script: Mapping[str, Answer] = field(default_factory=dict)
    arrival: Callable[[list[Reply]], list[Reply]] = lambda replies: replies
    asked: list[Order] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)  # whose replies were waited for

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        self.asked += orders
        replies = [self.script.get(order.client, honest)(order) for order in orders]
        for reply in self.arrival([reply for reply in replies if reply is not None]):
            self.taken.append(reply.client)
            yield reply

    def of_kind(self, kind: type[Order]) -> list[Any]:
        return [order for order in self.asked if isinstance(order, kind)]
