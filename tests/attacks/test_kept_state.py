"""What a client keeps is plain or private from birth: private training starts from what
is private, or from nothing.

Every pair of settings before and after a switch, for every method that keeps anything
at a client, through the real handlers.
"""

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.audit.site import AuditedSite, HostileServer
from fedaux.client.handlers import open_task
from fedaux.config.methods import METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.data import federated
from fedaux.flower.federation import read_reply
from fedaux.flower.node_settings import open_site
from fedaux.messages import TrainOrder, Update
from fedaux.methods.hooks import LocalWork, hooks_of
from helpers.audited_sites import audited_site, write_rows

SPEC = PrototypeSpec.of("mlp", hidden=4, features=4, norm="none")
PRIVATE = {
    "epsilon": 0.1,
    "epsilon_total": 4.0,
    "private_training": True,
    "train_rounds": 4,
    "sample_rate": 1.0,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "private": PRIVATE,
    # anybody can take this noise off: no better than plain
    "seeded": {**PRIVATE, "unsafe_seed": 3},
}
COLOURS = {"plain": "plain", "private": "private", "seeded": "plain"}
THETA = np.zeros(10, np.float32)


def keeps_state(method: str) -> bool:
    hooks, work = hooks_of(method, {}), LocalWork(1, 0.1, "sgd", 0.0, 0.0)
    return bool(
        hooks.client_update(
            THETA, THETA, work, hooks.broadcast(hooks.server_state(THETA)), {}
        ).state
    )


KEEPING = [name for name in METHODS if not METHODS[name].analytic and keeps_state(name)]


def test_these_methods_keep_state() -> None:
    assert KEEPING == [
        "fedaux-scaffold",
        "scaffold",
        "feddyn",
        "scaffold+p",
        "feddyn+p",
    ]


def site_at(folder: Path, method: str, settings: str) -> AuditedSite:
    """The same vault and records, under other settings of the owner."""
    return audited_site(
        folder / "data",
        SPEC,
        method=method,
        head_only=True,
        local={"optimizer": "sgd", "batch_size": 8},
        privacy=SETTINGS[settings],
    )


def order_to(site: AuditedSite, method: str, round_: int, last: int) -> TrainOrder:
    hooks = hooks_of(method, {})
    order = replace(
        HostileServer.against(site, (4,), 2).train(THETA, lr=0.1),
        method=method,
        optimizer="sgd",
        run="r",
    )
    return replace(
        order,
        round=round_,
        last_round=last,
        broadcast=hooks.broadcast(hooks.server_state(THETA)),
    )


@pytest.mark.parametrize("method", KEEPING)
@pytest.mark.parametrize(("before", "after"), list(product(SETTINGS, SETTINGS)))
def test_training_starts_from_state_of_its_own_colour_alone(
    before: str, after: str, method: str, tmp_path: Path
) -> None:
    x = np.abs(np.random.default_rng(0).normal(size=(16, 4)))
    write_rows(tmp_path / "data", x, [0, 1] * 8, ("a", "b"))
    first, second = site_at(tmp_path, method, before), site_at(tmp_path, method, after)
    read_reply(Update, first.send(order_to(first, method, 1, 0)))
    order, grid = order_to(second, method, 2, 1), second.grid
    (node,) = grid.get_node_ids()
    task = open_task(order, open_site(grid.context(node)))
    assert bool(task.state) == (COLOURS[before] == COLOURS[after])
    assert task.path.name.startswith(f"trained-{COLOURS[after]}-")
    kept = {path.name.split("-")[1] for path in second.vault.glob("state-*")}
    assert kept == {COLOURS[before]}


@pytest.mark.parametrize("method", KEEPING)
def test_records_of_plain_training_do_not_reach_a_private_model(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its noise, the model after the switch is the same to the bit, whatever
    plain training saw before.
    """
    monkeypatch.setattr(
        "fedaux.privacy.mechanism.add_noise", lambda values, scale: values
    )
    sent = []
    for name, seen in (("one", 0.0), ("other", 300.0)):
        folder, x = tmp_path / name, np.ones((16, 4), np.float32)
        write_rows(
            folder / "data",
            np.where(np.arange(16)[:, None] == 0, seen, x),
            [0, 1] * 8,
            ("a", "b"),
        )
        plain, private = (
            site_at(folder, method, "plain"),
            site_at(folder, method, "private"),
        )
        read_reply(Update, plain.send(order_to(plain, method, 1, 0)))
        shutil.rmtree(folder / "data")
        # the records that both have now
        write_rows(folder / "data", x, [0, 1] * 8, ("a", "b"))
        federated._cached_private.cache_clear()
        update = read_reply(Update, private.send(order_to(private, method, 2, 1)))
        sent.append(
            [
                array.tobytes()
                for array in (*update.weights.values(), *update.extra.values())
            ]
        )
    assert sent[0] == sent[1]
