"""What a client does with an order, and what it must not do whoever asks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.config import AuxConfig, Config, DataConfig, LocalConfig, PrivacyConfig
from fedaux.data.federated import open_data
from fedaux.exchange import EvaluateOrder, Failure, PrepareOrder, Release, Score, Update
from fedaux.experiment import in_process
from fedaux.privacy.release import BudgetError, Vault
from fedaux.prototypes import PrototypeSpec
from fedaux.runtime.client import released, request_hash
from fedaux.runtime.federation import GridFederation
from fedaux.server import Server
from fedaux.state import RunState

CONFIG = Config(
    method="fedaux",
    prototypes=(PrototypeSpec.of("mlp", features=8, hidden=8),),
    data=DataConfig(clients=3, alpha=1.0),
    aux=AuxConfig(limit=100),
    local=LocalConfig(epochs=1),
    privacy=PrivacyConfig(epsilon=1.0, dims=4),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    data = open_data(CONFIG)
    config = replace(CONFIG, pretrain=replace(CONFIG.pretrain, epochs=0))
    return Server(config, data.aux, data.test, 10, data.clients, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def state(server: Server) -> RunState:
    return server.initial_state()


@pytest.fixture
def order(server: Server, state: RunState) -> PrepareOrder:
    return server.prepare_order(state, "client-000")


@pytest.fixture
def site(tmp_path: Path) -> GridFederation:
    return in_process(CONFIG, open_data(CONFIG), tmp_path)


def ask(site: GridFederation, order: Any) -> Any:
    (reply,) = site.ask([order])
    return reply


def test_training_starts_from_the_order_and_repeats(site: GridFederation, server: Server, state: RunState) -> None:
    one, two = (ask(site, server.train_order(state, "client-001")) for _ in range(2))
    other = ask(site, replace(server.train_order(state, "client-001"), seed=1))
    assert isinstance(one, Update)
    assert (one.client, one.round, one.records) == ("client-001", 1, len(open_data(CONFIG).client(1)))
    name = next(iter(one.weights))
    assert np.array_equal(one.weights[name], two.weights[name])
    assert not np.array_equal(one.weights[name], other.weights[name])
    assert not np.array_equal(one.weights[name], next(iter(state.weights.values()))[name])


def test_evaluation_counts_right_answers(site: GridFederation, server: Server, state: RunState) -> None:
    (label,) = state.weights
    order = EvaluateOrder("client-002", 1, CONFIG.prototypes[0].to_json(), 10, state.weights[label])
    reply = ask(site, order)
    assert isinstance(reply, Score)
    assert 0 <= reply.correct <= reply.records == len(open_data(CONFIG).client(2))


def test_the_same_request_gets_the_same_bytes(site: GridFederation, order: PrepareOrder, tmp_path: Path) -> None:
    one, two = ask(site, order), ask(site, order)
    after_a_restart = ask(in_process(CONFIG, open_data(CONFIG), tmp_path), order)
    assert isinstance(one, Release)
    for other in (two, after_a_restart):
        assert {**vars(one), "arrays": 0} == {**vars(other), "arrays": 0}
        assert np.array_equal(one.arrays["values"], other.arrays["values"])
    assert len(list((tmp_path / "clients" / "client-000").iterdir())) == 1


CHANGES: list[dict[str, Any]] = [
    {"epsilon": 0.5},
    {"delta": 1e-6},
    {"adjacency": "add-remove"},
    {"certificate": "analytic"},
    {"unsafe_seed": 3},
    {"scorer": json.dumps({"name": "mean-embedding", "dims": 3, "ratio": "bayes", "ridge": 0.01})},
    {"extractor": "shifted"},
    {"public": "shifted"},
]


def changed(order: PrepareOrder, change: dict[str, Any]) -> PrepareOrder:
    shifted = {key: {name: array * 2 for name, array in getattr(order, key).items()} for key in ("extractor", "public")}
    return replace(order, **{key: shifted[key] if value == "shifted" else value for key, value in change.items()})


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_another_request_is_another_release_and_refused(
    site: GridFederation, order: PrepareOrder, change: dict[str, Any]
) -> None:
    other = changed(order, change)
    assert request_hash(other) != request_hash(order)
    assert isinstance(ask(site, order), Release)
    refused = ask(site, other)
    assert isinstance(refused, Failure)
    assert "BudgetError" in refused.reason


def test_every_client_has_a_budget_of_its_own(site: GridFederation, server: Server, state: RunState) -> None:
    orders = [server.prepare_order(state, client) for client in server.clients]
    assert [type(reply) for reply in site.ask(orders)] == [Release] * 3


def test_nothing_is_returned_that_is_not_stored(order: PrepareOrder, tmp_path: Path) -> None:
    class Full(Vault):
        def store(self, request: str, made: Release) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        released(order, open_data(CONFIG).client(0), Full(tmp_path, 1.0))


def test_no_record_is_read_for_a_release_beyond_the_budget(order: PrepareOrder, tmp_path: Path) -> None:
    class Sealed:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"private records were opened ({name})")

    with pytest.raises(BudgetError):
        released(order, Sealed(), Vault(tmp_path, 0.5))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["client-0000", "../elsewhere"])
def test_another_name_does_not_open_another_budget(
    site: GridFederation, order: PrepareOrder, tmp_path: Path, name: str
) -> None:
    assert isinstance(ask(site, order), Release)
    site.nodes[name] = site.nodes["client-000"]
    assert isinstance(ask(site, replace(order, client=name)), Failure)
    assert len(list(tmp_path.rglob("release-*.json"))) == 1


@pytest.mark.parametrize("change", [{"unsafe_seed": 0}, {"delta": 0.9}, {"adjacency": "add-remove"}], ids=str)
def test_a_client_grants_no_more_than_its_own_settings(
    site: GridFederation, order: PrepareOrder, change: dict[str, Any]
) -> None:
    assert isinstance(ask(site, replace(order, **change)), Failure)
