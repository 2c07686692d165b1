"""Orders carry what the work needs, each array once for all clients, and what is known
of a client's account.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config
from fedaux.config.distillation import TeachersConfig
from fedaux.config.parsing import ConfigError
from fedaux.core.accounts import Account
from fedaux.core.rng import derive_seed
from fedaux.data.fingerprints import fingerprint_records
from fedaux.messages import Teaching
from fedaux.scoring.features import extractor_hash
from fedaux.scoring.teacher_weights import TeacherWeights
from fedaux.server.orders import AccountCounts
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState, StateError
from fedaux.server.server import Server
from helpers.scripted import CLIENTS, CONFIG, MLP, make_server, release
from helpers.states import ACCOUNT

HEADS = replace(CONFIG, head_only=True)


def test_a_prepare_order_names_the_extractor_by_its_hash() -> None:
    server = make_server()
    state = initial_state(server)
    order = server.orders.prepare(state, "a")
    assert order.h0 == extractor_hash(state.extractors[MLP.label], MLP.to_json())
    assert order.extractor is state.extractors[MLP.label]
    assert order.public is state.public[MLP.label]
    assert (order.scorer, order.classes, order.size) == ("logistic", 3, 6)


def test_a_train_order_has_the_rounds_own_seed() -> None:
    server = make_server()
    state = replace(initial_state(server), round=4)
    orders = [server.orders.train(state, client) for client in CLIENTS]
    assert [order.seed for order in orders] == [
        derive_seed(0, "batches", client, 5) for client in CLIENTS
    ]
    assert {order.round for order in orders} == {5}
    # serialized once
    assert all(order.weights is state.weights[MLP.label] for order in orders)
    assert (orders[0].h0, orders[0].extractor) == ("", {})


def test_a_count_goes_back_with_the_clients_signature_of_it(tmp_path: Path) -> None:
    account, known = (
        Account(0.5, 1e-5, "replace-one", "record", 3, "s3"),
        AccountCounts(tmp_path / "accounts.json"),
    )
    known.update(
        {
            "b": replace(account, entries=4, signature="s4"),
            "a": account,
            "c": replace(account, signature=""),
        }
    )
    server = make_server()
    orders = replace(server.orders, known_accounts=known)
    told = {
        "a": replace(account, entries=2, signature="s2"),
        "b": replace(account, entries=4, signature=""),
    }
    state = initial_state(server).with_accounts("abc", {**told, "c": account})
    for make in (orders.prepare, orders.train):
        sent = [
            (order.known_entries, order.known_signature)
            for order in (make(state, client) for client in "abcd")
        ]
        assert sent == [(3, "s3"), (4, "s4"), (3, "s3"), (0, "")]


@pytest.mark.parametrize(
    ("method", "mu"), [("fedprox", 0.01), ("fedavg", 0.0), ("fedaux", 0.0)]
)
def test_only_fedprox_is_proximal(method: str, mu: float) -> None:
    server = make_server(replace(CONFIG, method=method))
    assert server.orders.train(initial_state(server), "a").mu == mu


def test_where_heads_train_the_extractor_is_sent_to_who_does_not_have_its_features() -> (
    None
):
    server = make_server(HEADS)
    state = initial_state(server)
    first, later = (
        server.orders.train(known, "a")
        for known in (state, state.with_clients("a", prepared=True))
    )
    assert first.h0 == later.h0 == server.public.h0[MLP.label].hash
    assert first.extractor is state.extractors[MLP.label]
    assert later.extractor == {}
    assert server.orders.train(state.with_clients("a", prepared=True), "b").extractor


def test_half_precision_is_made_once_a_round() -> None:
    half = replace(
        CONFIG,
        method="fedavg",
        federation=replace(CONFIG.federation, precision="float16"),
    )
    server = make_server(half)
    state = initial_state(server)
    one, other = (server.orders.train(state, client).weights for client in "ab")
    assert one is other
    assert one["parameters"].dtype == np.float16
    moved = replace(state, weights={MLP.label: {**state.weights[MLP.label]}})
    assert server.orders.train(moved, "a").weights is not one


def started(
    config: Config, clients: str = "abcd"
) -> tuple[Server, RunState, TeacherWeights | None]:
    server = make_server(config)
    state = initial_state(server)
    if server.method.scores:
        state = state.with_releases(
            {name: release(server.orders.prepare(state, name)) for name in clients}
        )
    embedding = server.restore(state)
    return (
        server,
        state,
        embedding.teacher_weights(state.releases, CLIENTS) if embedding else None,
    )


AT_CLIENTS = replace(CONFIG, teachers=TeachersConfig(run_on="clients"))


def test_a_teacher_is_told_what_to_score_and_against_what() -> None:
    server, state, weights = started(AT_CLIENTS, "ab")
    order, other = (server.orders.train(state, client, weights) for client in "ac")
    asked = Teaching.from_json(order.teaching)
    assert asked == Teaching(
        fingerprint_records(server.public.distill),
        40,
        "logistic",
        "odds",
        server.public.h0[MLP.label].hash,
    )
    assert order.public is state.public[MLP.label]
    assert order.fit["peak"].shape == (40,)
    # it has made no release
    assert (other.teaching, other.public, other.fit, other.client_fit) == (
        "",
        {},
        {},
        {},
    )


def test_where_all_count_alike_nothing_is_scored() -> None:
    server, state, weights = started(
        replace(
            AT_CLIENTS,
            method="feddf",
            teachers=replace(AT_CLIENTS.teachers, examples=7),
        )
    )
    order = server.orders.train(state, "a", weights)
    assert Teaching.from_json(order.teaching) == Teaching(server.public.distill_hash, 7)
    assert (order.public, order.fit, order.client_fit) == ({}, {}, {})


def test_the_extractor_goes_to_a_teacher_that_may_have_lost_its_features() -> None:
    server, state, weights = started(AT_CLIENTS)
    assert server.orders.train(state, "a", weights).extractor == {}
    lost = state.with_clients("a", prepared=False)
    assert (
        server.orders.train(lost, "a", weights).extractor is state.extractors[MLP.label]
    )


@pytest.mark.parametrize("head_only", [True, False])
def test_statistics_of_features_go_to_those_that_train_heads_or_sum_features(
    head_only: bool,
) -> None:
    server = make_server(
        replace(CONFIG, method="fedavg", head_init="ridge", head_only=head_only)
    )
    state = initial_state(server)
    server.restore(state)
    expected = state.standardisation[MLP.label]
    assert server.orders.sums(state, "a", "moments").standardisation is expected
    assert server.orders.train(state, "a").standardisation == (
        expected if head_only else {}
    )
    assert (
        server.orders.sums(state, "a", "moments").width,
        expected["mean"].shape,
    ) == (6, (6,))


def test_signatures_go_with_their_counts(tmp_path: Path) -> None:
    path = tmp_path / "heard.json"
    known = AccountCounts(path)
    assert known.entries("berlin") == (0, "")
    known.update({"berlin": replace(ACCOUNT, entries=3, signature="b3")})
    known.update(
        {
            "berlin": replace(ACCOUNT, entries=2, signature="b2"),
            "paris": replace(ACCOUNT, entries=2),
        }
    )
    known.update({"berlin": replace(ACCOUNT, entries=3, signature="")})
    assert [AccountCounts(path).entries(name) for name in ("berlin", "paris")] == [
        (3, "b3"),
        (2, ""),
    ]
    known.update({"berlin": replace(ACCOUNT, entries=3, signature="a3")})
    assert AccountCounts(path).entries("berlin") == (3, "a3")


@pytest.mark.parametrize("text", ["{", "[]", '{"berlin": "many"}', '{"berlin": [1]}'])
def test_a_damaged_file_ends_the_run_before_it_begins(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "heard.json").write_text(text)
    with pytest.raises(StateError, match="is damaged"):
        AccountCounts(tmp_path / "heard.json")


def test_class_weights_go_to_every_client_and_balance_by_what_was_released() -> None:
    declared = replace(CONFIG, method="fedavg", class_weights=(1.0, 2.0, 0.5))
    server = make_server(declared)
    sent = server.orders.train(initial_state(server), "a").class_weights
    assert sent["weights"].tolist() == [1.0, 2.0, 0.5]
    server = make_server(replace(declared, class_weights=()))
    assert server.orders.train(initial_state(server), "a").class_weights == {}
    server = make_server(replace(declared, class_weights=(1.0, 2.0)))
    with pytest.raises(ConfigError, match="has 2 numbers, and there are 3 classes"):
        server.orders.train(initial_state(server), "a")
