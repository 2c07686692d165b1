"""What lying clients cost, and what the guard and the cap on shares save: accuracy on
the digits of `fedaux demo`.

    python benchmarks/hostile.py [--alpha 0.01] [--seeds 3] [--rounds 3] [--cache DIR]

A lying client trains on labels moved by one (0 → 1, …, 9 → 0), claims as many records
as it can get away with, and makes the loudest release it can:

    class-embedding          all classes alike, at the centre of the public data
    class-embedding, ε 1000  the same, and states a budget at which there is hardly any
                             noise: others drown against it
    logistic                 a vector as long as is believed, of one record at a stated
                             ε of 0.001: nearly any length is

It knows the server's checks and keeps to them, but for the columns "no checks" and
"excluded".
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedaux.client.training import ordered_optimizer, train_local
from fedaux.config.distillation import TeachersConfig
from fedaux.config.presets import DEMO
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import FederationConfig
from fedaux.core.failures import Failure
from fedaux.core.rng import torch_stream
from fedaux.data.federated import open_data
from fedaux.data.records import Records
from fedaux.flower.validation import InvalidReplyError, max_release_norm, validate_reply
from fedaux.messages import (
    Federation,
    Order,
    PrepareOrder,
    Release,
    Reply,
    TrainOrder,
    Update,
)
from fedaux.models import build, flatten_state, load_state
from fedaux.privacy.mechanism import GRID, multiplier
from fedaux.runs.runner import in_process
from fedaux.runs.session import run_in_folder
from fedaux.scoring.base import bound_function
from fedaux.server.server import Server, make_server

EVERYTHING = 10**8  # records claimed where nobody looks
ROOM = 200  # records that a careful federation allows: its clients have 72


@dataclass(frozen=True)
class Defence:
    name: str
    checks: bool
    boldness: int  # records that are claimed
    max_records: int = ROOM
    max_share: float = 1.0

    @property
    def obeyed(self) -> bool:
        """Whether liars keep to the checks."""
        return self.checks and self.boldness <= self.max_records


DEFENCES = [
    Defence("no checks", False, EVERYTHING),
    Defence("excluded", True, EVERYTHING),
    Defence("records ≤ 10⁶", True, 10**6, 10**6),
    Defence("records ≤ 10⁶, share ≤ 0.3", True, 10**6, 10**6, 0.3),
    Defence(f"records ≤ {ROOM}", True, ROOM),
    Defence(f"records ≤ {ROOM}, share ≤ 0.5", True, ROOM, max_share=0.5),
    Defence(f"records ≤ {ROOM}, share ≤ 0.3", True, ROOM, max_share=0.3),
]


@dataclass(frozen=True)
class Attack:
    scorer: str
    epsilon: float  # of honest clients
    stated: float

    @property
    def name(self) -> str:
        told = (
            f", ε {self.stated:g}"
            if self.scorer != "logistic" and self.stated != self.epsilon
            else ""
        )
        return f"{self.scorer}{told}"


ATTACKS = [
    Attack("class-embedding", 1.0, 1.0),
    Attack("class-embedding", 1.0, 1000.0),
    Attack("logistic", 100.0, 0.001),  # at ε = 1 it is all noise on so few records
]


@dataclass(frozen=True, eq=False)
class Hostile:
    """A federation some of whose clients lie, and a server that looks, or not."""

    inner: Federation
    server: Server
    liars: frozenset[str]
    attack: Attack
    defence: Defence

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        sent = {order.client: order for order in orders}
        for reply in self.inner.ask(orders):
            order = sent[reply.client]
            if reply.client not in self.liars:
                yield reply
            elif isinstance(order, TrainOrder) and isinstance(reply, Update):
                yield self._checked(order, self._flipped(order, reply))
            elif isinstance(order, PrepareOrder) and isinstance(reply, Release):
                yield self._checked(order, self._loud(order, reply))
            else:
                yield reply

    def _checked(self, order: Order, reply: Release | Update) -> Reply:
        try:
            if self.defence.checks:
                validate_reply(
                    order,
                    reply,
                    self.defence.max_records,
                    bound_function(self.server.scorer),
                )
        except InvalidReplyError as error:
            return Failure(reply.client, str(error))
        return reply

    def _flipped(self, order: TrainOrder, reply: Update) -> Update:
        data = open_data(self.server.config)
        own = data.client(data.clients.index(order.client))
        model = build(
            PrototypeSpec.from_json(order.prototype), own.shape, order.classes, 0
        )
        load_state(model, order.weights)
        wrong = Records(own.gather(), (own.labels + 1) % order.classes)
        batches = torch_stream(order.seed)
        steps = {"epochs": order.epochs, "batch_size": order.batch_size}
        train_local(
            model, wrong, **steps, optimizer=ordered_optimizer(order), generator=batches
        )
        return replace(
            reply, records=self.defence.boldness, weights=flatten_state(model)
        )

    def _loud(self, order: PrepareOrder, reply: Release) -> Release:
        size = len(reply.arrays["values"])
        bounds = bound_function(self.server.scorer)
        assert bounds is not None
        records = (
            1
            if order.scorer == "logistic" and self.defence.obeyed
            else self.defence.boldness
        )
        bound = bounds(order.public, reply.adjacency, records)
        reach = bound.sensitivity
        scale = (
            multiplier(self.attack.stated, reply.delta, "analytic", size, reach) * reach
        )
        if order.scorer == "logistic":
            values = reply.arrays["values"].astype(np.float64)
            values *= (
                0.99 * max_release_norm(bound, scale, size)
                if self.defence.obeyed
                else 2.0**62
            ) / np.linalg.norm(values)
        else:
            values = np.zeros((order.classes, size // order.classes))
            values[:, -1] = records / order.classes * GRID
        return replace(
            reply,
            records=records,
            epsilon=self.attack.stated,
            calibration="analytic",
            sensitivity=bound.sensitivity,
            scale=scale,
            step=bound.step,
            arrays={"values": np.rint(values).astype(np.int64).ravel()},
        )


def accuracy(
    config: Config, attack: Attack, liars: int, defence: Defence, seed: int, cache: Path
) -> float:
    """On the test images, after the last round."""
    config = replace(
        config,
        seed=seed,
        privacy=replace(
            DEMO.privacy, scorer=attack.scorer, epsilon=attack.epsilon, unsafe_seed=seed
        ),
        federation=FederationConfig(max_records=defence.max_records),
        teachers=TeachersConfig(max_share=defence.max_share),
    )
    server = make_server(config, cache=cache)
    with tempfile.TemporaryDirectory() as folder:
        inner = in_process(config, Path(folder), cache)
        federation = Hostile(
            inner, server, frozenset(server.clients[:liars]), attack, defence
        )
        return run_in_folder(Path(folder), server, federation, None).accuracy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--alpha", type=float, default=DEMO.data.alpha)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=None)
    asked = parser.parse_args()
    cache = asked.cache or Path(tempfile.mkdtemp())
    config = replace(
        DEMO, rounds=asked.rounds, data=replace(DEMO.data, alpha=asked.alpha)
    )
    print(
        "| attack on | lying of 10 | "
        + " | ".join(one.name for one in DEFENCES)
        + " |",
        flush=True,
    )
    print("|---" * (2 + len(DEFENCES)) + "|", flush=True)
    for attack in ATTACKS:
        for liars in (0, 1, 3):
            cells = []
            for defence in DEFENCES:
                found = [
                    accuracy(config, attack, liars, defence, seed, cache)
                    for seed in range(asked.seeds)
                ]
                cells.append(
                    f"{np.mean(found):.2f} ({min(found):.2f}–{max(found):.2f})"
                )
            print(
                f"| {attack.name} | {liars} | " + " | ".join(cells) + " |", flush=True
            )


if __name__ == "__main__":
    main()
