"""A round of stacked clients is a round of messages: same replies, same failures, in the same order."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.client.task import ClientTask
from fedaux.config.distillation import TeachersConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, FederationConfig, LocalConfig, PretrainConfig, PrivacyConfig
from fedaux.core.messages import Failure, Refusal, Reply, TrainOrder, Update
from fedaux.flower import stacked_clients
from fedaux.flower.federation import GridFederation
from fedaux.flower.stacked_clients import StackedClient, StackedFederation, stacks, train_clients
from fedaux.runs.runner import in_process
from fedaux.server.server import Server, make_server
from fedaux.server.start import initial_state

CLIENTS = 5
CONFIG = Config(
    method="fedavg",
    head_only=True,
    prototypes=(PrototypeSpec.of("mlp", features=8, hidden=8), PrototypeSpec.of("mlp", features=8, hidden=9)),
    data=DataConfig(clients=CLIENTS, alpha=0.3),
    aux=AuxConfig(limit=100),
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(epochs=2, lr=1e-2),
)
SGD = replace(CONFIG.local, optimizer="sgd", momentum=0.9, weight_decay=1e-3, lr=0.1)


def prepared(config: Config, folder: Path) -> tuple[Server, StackedFederation, list[TrainOrder]]:
    server = make_server(config, cache=folder / "cache")
    state = initial_state(server)
    server.restore(state)
    federation = in_process(config, folder / "run", server.cache)
    assert isinstance(federation, StackedFederation)
    return server, federation, [server.orders.train(state, client) for client in server.clients]


def by_message(federation: GridFederation) -> GridFederation:
    """The same clients without stacks."""
    return GridFederation(federation.grid, federation.nodes, federation.timeout, federation.max_records)


def ask(federation: GridFederation, orders: Sequence[TrainOrder]) -> list[Reply]:
    return list(federation.ask(orders))


def assert_same(stacked: Sequence[Reply], serial: Sequence[Reply]) -> None:
    for ours, oracle in zip(stacked, serial, strict=True):
        if isinstance(oracle, Failure):
            assert ours == oracle
            continue
        assert isinstance(ours, Update)
        assert isinstance(oracle, Update)
        facts = {"loss": 0, "seconds": 0, "weights": 0, "extra": 0, "ensemble": 0}
        assert {**vars(ours), **facts} == {**vars(oracle), **facts}
        assert ours.loss == pytest.approx(oracle.loss, abs=1e-6)
        assert ours.seconds > 0
        for mine, theirs in ((ours.weights, oracle.weights), (ours.extra, oracle.extra)):
            assert mine.keys() == theirs.keys()
            for name, array in theirs.items():
                assert mine[name].dtype == array.dtype
                assert np.allclose(mine[name], array, rtol=0, atol=1e-6 if array.dtype == np.float32 else 1e-3)
        assert ours.ensemble.keys() == oracle.ensemble.keys()
        for name, steps in oracle.ensemble.items():
            assert np.allclose(ours.ensemble[name] * 2.0**-40, steps * 2.0**-40, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"local": SGD},
        {"method": "fedprox", "local": replace(CONFIG.local, mu=0.5)},
        {"method": "fednova", "local": SGD},
        {"method": "scaffold", "local": SGD},
        {"method": "feddyn"},
        {"method": "feddf", "teachers": TeachersConfig(run_on="clients")},
        {"federation": FederationConfig(precision="float16")},
    ],
    ids=["adam", "sgd", "fedprox", "fednova", "scaffold", "feddyn", "teachers", "float16"],
)
def test_replies_are_those_of_messages(changes: dict[str, Any], tmp_path: Path) -> None:
    _, federation, orders = prepared(replace(CONFIG, **changes), tmp_path)
    assert_same(ask(federation, orders), ask(by_message(federation), orders))


def test_stacks_are_as_large_as_memory_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, federation, orders = prepared(CONFIG, tmp_path)
    whole, sizes = ask(federation, orders), []

    def watched(clients: Any) -> Any:
        clients = list(clients)
        sizes.append(len(clients))
        return train_clients(clients)

    monkeypatch.setattr(stacked_clients, "train_clients", watched)
    largest = max(federation._open(order).nbytes for order in orders)  # type: ignore[union-attr]
    monkeypatch.setattr(stacked_clients, "STACK_BYTES", largest)
    assert_same(ask(federation, orders), whole)
    assert sum(sizes) == CLIENTS
    assert len(sizes) > 2


def context_of(federation: StackedFederation, order: TrainOrder) -> Any:
    return federation.grid.context(federation.nodes[order.client])  # type: ignore[attr-defined]


def test_a_client_fails_alone_and_for_its_own_reason(tmp_path: Path) -> None:
    """An order that is refused, a client that is not there, one that diverges: the others train on."""
    _, federation, orders = prepared(CONFIG, tmp_path)
    good = ask(federation, orders)
    overflow = {"parameters": np.full_like(orders[3].weights["parameters"], 3e38)}
    orders[1] = replace(orders[1], classes=11)
    orders[2] = replace(orders[2], client="nobody")
    orders[3] = replace(orders[3], weights=overflow)
    replies = ask(federation, orders)
    messages = {reply.client: reply for reply in ask(by_message(federation), orders)}
    assert_same(replies, [messages[order.client] for order in orders])
    assert [isinstance(reply, Failure) for reply in replies] == [False, True, True, True, False]
    assert replies[1] == Failure(orders[1].client, Refusal.ORDER.description, "order")
    assert replies[2] == Failure("nobody", "not connected", "no-answer")
    assert "diverged" in replies[3].reason  # type: ignore[union-attr]
    assert_same([replies[0], replies[4]], [good[0], good[4]])


def test_an_update_that_cannot_be_made_is_tried_by_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, federation, orders = prepared(CONFIG, tmp_path)
    good = ask(federation, orders)

    updates, failed = ClientTask.update, set[str]()

    def fails_once(task: ClientTask, *facts: Any) -> Update:
        if task.order.client not in failed:
            failed.add(task.order.client)
            raise OSError("no space left on device")
        return updates(task, *facts)

    monkeypatch.setattr(ClientTask, "update", fails_once)
    assert_same(ask(federation, orders), good)
    assert len(failed) == CLIENTS


def test_clients_are_trained_as_their_replies_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare clients that nobody waits for are not trained."""
    _, federation, orders = prepared(CONFIG, tmp_path)
    monkeypatch.setattr(stacked_clients, "STACK_BYTES", 1)
    opened: list[str] = []
    open_client = StackedClient.open
    monkeypatch.setattr(
        StackedClient, "open", lambda order, context: opened.append(order.client) or open_client(order, context)
    )
    assert isinstance(next(federation.ask(orders)), Update)
    assert opened == [orders[0].client]


@pytest.mark.parametrize(
    "changes",
    [
        {"head_only": False},
        {"privacy": PrivacyConfig(private_training=True, epsilon_total=2.0)},
    ],
    ids=["whole networks", "dp-sgd"],
)
def test_other_clients_are_asked_by_message(changes: dict[str, Any], tmp_path: Path) -> None:
    config = replace(CONFIG, **changes)
    assert not stacks(config)
    assert type(in_process(config, tmp_path)) is GridFederation


def test_terms_have_the_state_that_clients_keep(tmp_path: Path) -> None:
    """SCAFFOLD's second round: each client has a control variate of its own."""
    _, federation, orders = prepared(replace(CONFIG, method="scaffold", local=SGD), tmp_path)
    first = ask(federation, orders)
    rng = np.random.default_rng(0)
    control = {
        order.client: {"c": rng.normal(scale=0.01, size=order.weights["parameters"].shape).astype(np.float32)}
        for order in orders
    }
    again = [replace(order, round=2, last_round=1, broadcast=control[order.client]) for order in orders]
    second = ask(federation, again)
    assert_same(second, ask(by_message(federation), again))
    for before, after in zip(first, second, strict=True):
        assert not np.allclose(before.extra["c"], after.extra["c"])  # type: ignore[union-attr]
