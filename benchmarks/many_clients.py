"""B13: what a client costs does not depend on how many others are registered.

The run of docs/scale.md, ten thousand clients for 50 rounds, is `fedaux run
studies/ten_thousand.toml`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.measure import Action, Row, compare
from fedaux.config.presets import DEMO
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.messages import Update
from fedaux.runs.runner import in_process
from fedaux.server.preparation import collect_releases, initial_state
from fedaux.server.server import make_server

ASKED, RECORDS = 100, 6  # clients of a round; records of each of them


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as few, tempfile.TemporaryDirectory() as many:
        setting = f"{ASKED} orders to heads, 10,000 clients registered / {ASKED}"
        yield compare(
            "B13", setting, 1.1, orders(10_000, Path(many)), orders(ASKED, Path(few))
        )


def orders(clients: int, folder: Path) -> Action:
    """One round's orders and replies, of so many registered clients."""
    size = round(clients * RECORDS / 0.64)
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.normal(size=(size, 64)).astype(np.float32))
    np.save(folder / "y.npy", np.arange(size) % 10)
    config = replace(
        DEMO,
        head_only=True,
        prototypes=(PrototypeSpec("mlp"),),
        data=DataConfig(
            source="npy", path=str(folder), clients=clients, partition="iid"
        ),
        aux=AuxConfig(fraction=0.2),
        pretrain=replace(DEMO.pretrain, epochs=0),
    )
    server = make_server(config, cache=folder / "cache")
    federation = in_process(config, folder, folder / "cache")
    state = initial_state(server)
    server.restore(state)
    asked = [server.clients[i] for i in rng.choice(clients, ASKED, replace=False)]
    state, _ = collect_releases(server, federation, state, asked)

    def ask() -> None:
        replies = list(
            federation.ask([server.orders.train(state, client) for client in asked])
        )
        assert all(isinstance(reply, Update) for reply in replies)

    return ask
