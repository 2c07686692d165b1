"""A round of stacked clients is a round of messages: same replies, same failures, in
the same order.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedaux.client.kept_state import TrainingSummary
from fedaux.client.stacked_heads import (
    HeadTask,
    StackedClient,
    can_batch_heads,
    train_clients,
    train_heads,
)
from fedaux.client.training import ClientTask, gradient_term, train_local
from fedaux.config.distillation import TeachersConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.failures import Failure, Refusal
from fedaux.core.rng import torch_stream
from fedaux.data.records import Records
from fedaux.flower import stacked_heads
from fedaux.flower.federation import GridFederation
from fedaux.flower.stacked_heads import StackedFederation
from fedaux.messages import Reply, TrainOrder, Update
from fedaux.methods.hooks import Hooks
from fedaux.models import HeadFeatures, flatten_state, linear_head, load_state
from fedaux.models.optimizer import Optimizer
from fedaux.models.registry import standardisation
from fedaux.runs.runner import in_process
from fedaux.server.preparation import initial_state
from fedaux.server.server import Server, make_server

CLIENTS = 5
CONFIG = Config(
    method="fedavg",
    head_only=True,
    prototypes=(
        PrototypeSpec.of("mlp", features=8, hidden=8),
        PrototypeSpec.of("mlp", features=8, hidden=9),
    ),
    data=DataConfig(clients=CLIENTS, alpha=0.3),
    aux=AuxConfig(limit=100),
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(epochs=2, lr=1e-2),
)
LOCAL_SGD = replace(
    CONFIG.local, optimizer="sgd", momentum=0.9, weight_decay=1e-3, lr=0.1
)


def prepared(
    config: Config, folder: Path
) -> tuple[Server, StackedFederation, list[TrainOrder]]:
    server = make_server(config, cache=folder / "cache")
    state = initial_state(server)
    server.restore(state)
    federation = in_process(config, folder / "run", server.cache)
    assert isinstance(federation, StackedFederation)
    return (
        server,
        federation,
        [server.orders.train(state, client) for client in server.clients],
    )


def by_message(federation: GridFederation) -> GridFederation:
    """The same clients without stacks."""
    return GridFederation(
        federation.grid, federation.nodes, federation.timeout, federation.max_records
    )


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
        for mine, theirs in (
            (ours.weights, oracle.weights),
            (ours.extra, oracle.extra),
        ):
            assert mine.keys() == theirs.keys()
            for name, array in theirs.items():
                assert mine[name].dtype == array.dtype
                assert np.allclose(
                    mine[name],
                    array,
                    rtol=0,
                    atol=1e-6 if array.dtype == np.float32 else 1e-3,
                )
        assert ours.ensemble.keys() == oracle.ensemble.keys()
        for name, steps in oracle.ensemble.items():
            assert np.allclose(
                ours.ensemble[name] * 2.0**-40, steps * 2.0**-40, atol=1e-5
            )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"local": LOCAL_SGD},
        {"method": "fedprox", "local": replace(CONFIG.local, mu=0.5)},
        {"method": "fednova", "local": LOCAL_SGD},
        {"method": "scaffold", "local": LOCAL_SGD},
        {"method": "feddyn"},
        {"method": "feddf", "teachers": TeachersConfig(run_on="clients")},
        {"federation": FederationConfig(precision="float16")},
    ],
    ids=[
        "adam",
        "sgd",
        "fedprox",
        "fednova",
        "scaffold",
        "feddyn",
        "teachers",
        "float16",
    ],
)
def test_replies_are_those_of_messages(changes: dict[str, Any], tmp_path: Path) -> None:
    _, federation, orders = prepared(replace(CONFIG, **changes), tmp_path)
    assert_same(ask(federation, orders), ask(by_message(federation), orders))


def test_stacks_are_as_large_as_memory_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, federation, orders = prepared(CONFIG, tmp_path)
    whole, sizes = ask(federation, orders), []

    def watched(clients: Any) -> Any:
        clients = list(clients)
        sizes.append(len(clients))
        return train_clients(clients)

    monkeypatch.setattr(stacked_heads, "train_clients", watched)
    largest = max(federation._open(order).nbytes for order in orders)  # type: ignore[union-attr]
    monkeypatch.setattr(stacked_heads, "STACK_BYTES", largest)
    assert_same(ask(federation, orders), whole)
    assert sum(sizes) == CLIENTS
    assert len(sizes) > 2


def test_a_client_fails_alone_and_for_its_own_reason(tmp_path: Path) -> None:
    """An order that is refused, a client that is not there, one that diverges: the
    others train on.
    """
    _, federation, orders = prepared(CONFIG, tmp_path)
    good = ask(federation, orders)
    overflow = {"parameters": np.full_like(orders[3].weights["parameters"], 3e38)}
    orders[1] = replace(orders[1], classes=11)
    orders[2] = replace(orders[2], client="nobody")
    orders[3] = replace(orders[3], weights=overflow)
    replies = ask(federation, orders)
    messages = {reply.client: reply for reply in ask(by_message(federation), orders)}
    assert_same(replies, [messages[order.client] for order in orders])
    assert [isinstance(reply, Failure) for reply in replies] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert replies[1] == Failure(orders[1].client, Refusal.ORDER.description, "order")
    assert replies[2] == Failure("nobody", "not connected", "no-answer")
    assert "diverged" in replies[3].reason  # type: ignore[union-attr]
    assert_same([replies[0], replies[4]], [good[0], good[4]])


def test_an_update_that_cannot_be_made_is_tried_by_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_clients_are_trained_as_their_replies_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spare clients that nobody waits for are not trained."""
    _, federation, orders = prepared(CONFIG, tmp_path)
    monkeypatch.setattr(stacked_heads, "STACK_BYTES", 1)
    opened: list[str] = []
    open_client = StackedClient.open
    monkeypatch.setattr(
        StackedClient,
        "open",
        lambda order, context: (
            opened.append(order.client) or open_client(order, context)
        ),
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
def test_other_clients_are_asked_by_message(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    config = replace(CONFIG, **changes)
    assert not can_batch_heads(config)
    assert type(in_process(config, tmp_path)) is GridFederation


def test_terms_have_the_state_that_clients_keep(tmp_path: Path) -> None:
    """SCAFFOLD's second round: each client has a control variate of its own."""
    _, federation, orders = prepared(
        replace(CONFIG, method="scaffold", local=LOCAL_SGD), tmp_path
    )
    first = ask(federation, orders)
    rng = np.random.default_rng(0)
    control = {
        order.client: {
            "c": rng.normal(scale=0.01, size=order.weights["parameters"].shape).astype(
                np.float32
            )
        }
        for order in orders
    }
    again = [
        replace(order, round=2, last_round=1, broadcast=control[order.client])
        for order in orders
    ]
    second = ask(federation, again)
    assert_same(second, ask(by_message(federation), again))
    for before, after in zip(first, second, strict=True):
        assert not np.allclose(before.extra["c"], after.extra["c"])  # type: ignore[union-attr]


WIDTH, CLASSES = 12, 5
HEAD = linear_head(WIDTH, CLASSES)
ADAM, SGD = (
    Optimizer("adam", 1e-2, weight_decay=0.01),
    Optimizer("sgd", 0.02, momentum=0.9, weight_decay=0.01),
)


def pool(size: int = 400, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return Records(
        rng.normal(size=(size, WIDTH)).astype(np.float32),
        rng.integers(CLASSES, size=size),
    )


def parts(records: Records, sizes: list[int]) -> list[Records]:
    order = np.random.default_rng(1).permutation(len(records))
    return [records.take(rows) for rows in np.split(order, np.cumsum(sizes))[:-1]]


def starts(count: int) -> list[np.ndarray]:
    """Not all alike, though in a round they are."""
    rng = np.random.default_rng(2)
    return [
        rng.normal(scale=0.1, size=CLASSES * (WIDTH + 1)).astype(np.float32)
        for _ in range(count)
    ]


def stacked(
    clients: list[Records],
    epochs: int,
    optimizer: Optimizer,
    mu: float = 0.0,
    batch_size: int = 16,
):  # type: ignore[no-untyped-def]
    first = starts(len(clients))
    tasks = [
        HeadTask(
            first[i].copy(),
            records,
            torch_stream(i),
            gradient_term(Hooks(), mu, first[i], {}, {}),
        )
        for i, records in enumerate(clients)
    ]
    return train_heads(tasks, epochs, batch_size, optimizer)


def serial(
    clients: list[Records],
    epochs: int,
    optimizer: Optimizer,
    mu: float = 0.0,
    batch_size: int = 16,
):  # type: ignore[no-untyped-def]
    results = []
    for i, (records, start) in enumerate(
        zip(clients, starts(len(clients)), strict=True)
    ):
        load_state(HEAD, {"parameters": start})
        term = gradient_term(Hooks(), mu, start, {}, {})
        steps = {
            "epochs": epochs,
            "batch_size": batch_size,
            "optimizer": optimizer,
            "generator": torch_stream(i),
        }
        trained = train_local(HEAD, records, **steps, term=term)  # type: ignore[arg-type]
        results.append((flatten_state(HEAD)["parameters"], trained))
    return results


def assert_equal(
    ours: list[tuple[np.ndarray, TrainingSummary]],
    oracle: list[tuple[np.ndarray, TrainingSummary]],
) -> None:
    for (theta, trained), (expected, alone) in zip(ours, oracle, strict=True):
        assert np.allclose(theta, expected, rtol=0, atol=1e-6, equal_nan=True)
        assert trained.steps == alone.steps
        assert trained.loss == pytest.approx(alone.loss, abs=1e-6, nan_ok=True)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    batch_size=st.integers(1, 40),
    epochs=st.integers(1, 3),
    optimizer=st.sampled_from([ADAM, SGD, Optimizer("sgd", 0.1)]),
    mu=st.sampled_from([0.0, 0.5]),
)
@example(
    sizes=[33, 1, 16, 7, 200, 48, 17, 2], batch_size=16, epochs=3, optimizer=SGD, mu=0.5
)
def test_all_clients_at_once_are_each_by_itself(
    sizes: list[int], batch_size: int, epochs: int, optimizer: Optimizer, mu: float
) -> None:
    """Sizes from one record to many; a last batch that is full, short, or of one
    row.
    """
    clients = parts(pool(), sizes)
    ours = stacked(clients, epochs, optimizer, mu, batch_size)
    assert_equal(ours, serial(clients, epochs, optimizer, mu, batch_size))


@pytest.mark.parametrize("random", [0, 7])
def test_heads_on_mapped_features_are_heads_on_the_mapped_rows(random: int) -> None:
    records, features = pool(), HeadFeatures(WIDTH, random)
    features.standardise(standardisation(3 * records.x + 1))
    mapped = replace(records, x=features(torch.from_numpy(records.x)).numpy())
    start = (
        np.random.default_rng(3)
        .normal(scale=0.1, size=CLASSES * (features.width + 1))
        .astype(np.float32)
    )

    def heads(records: Records, *features: HeadFeatures):  # type: ignore[no-untyped-def]
        tasks = [
            HeadTask(start.copy(), part, torch_stream(i))
            for i, part in enumerate(parts(records, [33, 1, 16]))
        ]
        return train_heads(tasks, 2, 16, ADAM, *features)

    assert_equal(heads(records, features), heads(mapped))


def test_clients_need_not_share_a_pool() -> None:
    clients = [pool(size, seed) for seed, size in enumerate((20, 50, 9))]
    assert_equal(stacked(clients, 2, ADAM), serial(clients, 2, ADAM))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
def test_a_client_that_diverges_does_so_alone(value: float) -> None:
    """The rows that fill up its short batch are its own."""
    records = pool()
    clients = parts(records, [40, 23, 30])
    assert clients[1].rows is not None
    records.x[clients[1].rows[0]] = value
    ours = stacked(clients, 2, SGD)
    assert not np.isfinite(ours[1][1].loss)
    assert_equal([ours[0], ours[2]], [serial(clients, 2, SGD)[i] for i in (0, 2)])
