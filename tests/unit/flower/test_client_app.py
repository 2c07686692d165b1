"""What a client does with an order, and what it must not do whoever asks."""

import logging
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from fedaux.client import handlers, releases
from fedaux.client import loading as client_data
from fedaux.client import training as client_training
from fedaux.client.site import Site
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, LocalConfig, PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.core.failures import Failure, OrderError, Refusal
from fedaux.data.federated import open_data
from fedaux.data.records import Records
from fedaux.flower import client_app as client_module
from fedaux.flower.client_app import app
from fedaux.flower.federation import GridFederation
from fedaux.flower.node_settings import open_site
from fedaux.flower.serialization import serialize
from fedaux.messages import PrepareOrder, Release, TrainOrder, Update, identity
from fedaux.privacy.account_key import create_key
from fedaux.runs.runner import in_process
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.features import extractor_hash
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from fedaux.server.server import Server, make_server

CONFIG = Config(
    method="fedaux",
    prototypes=(PrototypeSpec.of("mlp", features=8, hidden=8),),
    data=DataConfig(clients=3, alpha=1.0),
    aux=AuxConfig(limit=100),
    local=LocalConfig(epochs=1),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=4),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    data = open_data(CONFIG)
    config = replace(CONFIG, pretrain=replace(CONFIG.pretrain, epochs=0))
    return Server.of(
        config, data.aux, data.test, 10, data.clients, tmp_path_factory.mktemp("cache")
    )


@pytest.fixture(scope="module")
def state(server: Server) -> RunState:
    return initial_state(server)


@pytest.fixture
def order(server: Server, state: RunState) -> PrepareOrder:
    return server.orders.prepare(state, "client-000")


@pytest.fixture
def site(tmp_path: Path) -> GridFederation:
    return in_process(CONFIG, tmp_path)


def site_with(folder: Path, **privacy: Any) -> GridFederation:
    """Clients whose own settings differ from the server's."""
    return in_process(
        replace(CONFIG, privacy=replace(CONFIG.privacy, **privacy)), folder
    )


def context_of(site: GridFederation, client: str) -> Any:
    return site.grid._contexts[site.nodes[client]]  # type: ignore[attr-defined]


def site_of(site: GridFederation, client: str) -> Site:
    return open_site(context_of(site, client))


def ask(site: GridFederation, order: Any) -> Any:
    (reply,) = site.ask([order])
    return reply


def test_training_starts_from_the_order_and_repeats(
    site: GridFederation, server: Server, state: RunState
) -> None:
    one, two = (ask(site, server.orders.train(state, "client-001")) for _ in range(2))
    other = ask(site, replace(server.orders.train(state, "client-001"), seed=1))
    assert isinstance(one, Update)
    assert (one.client, one.round, one.records) == (
        "client-001",
        1,
        len(open_data(CONFIG).client(1)),
    )
    name = next(iter(one.weights))
    assert np.array_equal(one.weights[name], two.weights[name])
    assert not np.array_equal(one.weights[name], other.weights[name])
    assert not np.array_equal(
        one.weights[name], next(iter(state.weights.values()))[name]
    )


@pytest.mark.parametrize(
    "kind", ["evaluate", "evaluate.default", "query", "query.evaluate"]
)
def test_there_is_no_oracle(
    site: GridFederation, server: Server, state: RunState, kind: str
) -> None:
    """Exact counts and losses of any weights on private records were to be had for the
    asking.
    """
    order = serialize(server.orders.train(state, "client-002"))
    (reply,) = site.grid.send_and_receive(
        [Message(order, site.nodes["client-002"], kind)]
    )
    assert reply.has_error()
    answered = [
        "query.hello",
        "query.look",
        "query.plan",
        "query.prepare",
        "query.sum",
        "query.sums",
        "train.default",
    ]
    assert sorted(app._registered_funcs) == answered


@pytest.mark.parametrize(
    "sends", ["class-sums", "moments", "models", "releases", "everything"]
)
def test_sums_without_noise_are_not_to_be_had_for_the_asking(
    site: GridFederation, server: Server, state: RunState, sends: str
) -> None:
    """This site's settings name no method that sends them;
    `end_to_end/test_analytic_heads.py` has those that do.
    """
    (reply,) = site.ask([server.orders.sums(state, "client-002", sends)])
    assert isinstance(reply, Failure)
    assert reply.reason == Refusal.ORDER.description


def test_the_same_request_gets_the_same_bytes(
    site: GridFederation, order: PrepareOrder, tmp_path: Path
) -> None:
    one, two = ask(site, order), ask(site, order)
    after_a_restart = ask(in_process(CONFIG, tmp_path), order)
    with_other_settings = ask(site_with(tmp_path, epsilon=9.0), order)
    assert isinstance(one, Release)
    for other in (two, after_a_restart, with_other_settings):
        assert {**vars(one), "arrays": 0, "account": 0} == {
            **vars(other),
            "arrays": 0,
            "account": 0,
        }
        assert np.array_equal(one.arrays["values"], other.arrays["values"])
    assert [path.parent.name for path in tmp_path.rglob("release-*.json")] == [
        "client-000"
    ]


@pytest.mark.parametrize(
    ("first", "second"), [(-1, 1), (1, -1)], ids=["seeded later", "seeded before"]
)
def test_noise_from_a_known_seed_is_another_answer(
    order: PrepareOrder, tmp_path: Path, first: int, second: int
) -> None:
    """What a study drew from a seed is no release of a site without one, nor the other
    way round; each has a price.
    """
    own, changed_settings = (
        site_with(tmp_path, unsafe_seed=seed) for seed in (first, second)
    )
    before = ask(own, order)
    refused = ask(changed_settings, order)
    after = ask(own, order)
    assert refused == Failure(
        "client-000", Refusal.BUDGET.description, Refusal.BUDGET.value
    )
    assert before.unsafe == after.unsafe == (first >= 0)
    assert np.array_equal(before.arrays["values"], after.arrays["values"])


CHANGES: list[dict[str, Any]] = [
    {"prototype": PrototypeSpec.of("mlp", features=8, hidden=9).to_json()},
    {"extractor": "shifted"},
    {"public": "shifted"},
    {"scorer": "logistic"},
]


def changed(order: PrepareOrder, change: dict[str, Any]) -> PrepareOrder:
    shifted = {
        key: {name: array * 2 for name, array in getattr(order, key).items()}
        for key in ("extractor", "public")
    }
    other = replace(
        order,
        **{
            key: shifted[key] if value == "shifted" else value
            for key, value in change.items()
        },
    )
    return replace(other, h0=extractor_hash(other.extractor, other.prototype))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_another_request_is_another_release_and_refused(
    site: GridFederation, order: PrepareOrder, change: dict[str, Any]
) -> None:
    other = changed(order, change)
    assert identity(other) != identity(order)
    assert isinstance(ask(site, order), Release)
    refused = ask(site, other)
    assert isinstance(refused, Failure)
    ordered = not {"scorer", "prototype"}.isdisjoint(change)  # which the settings have
    assert refused.reason == (Refusal.ORDER if ordered else Refusal.BUDGET).description


@pytest.mark.parametrize(
    ("target", "is_spent"),
    [
        ("fedaux.client.releases.Units.of", False),
        ("fedaux.client.releases.release", True),
    ],
    ids=["reading", "drawing"],
)
def test_an_attempt_that_failed_counts_as_well(
    site: GridFederation,
    order: PrepareOrder,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    is_spent: bool,
) -> None:
    """Nobody else may use its entry. It serves the next attempt, unless noise was
    drawn: that may be why it failed.
    """
    with monkeypatch.context() as patch:
        patch.setattr(target, fail)
        assert ask(site, order).reason == Refusal.FAILED.description
    assert (
        ask(site, changed(order, {"public": "shifted"})).reason
        == Refusal.BUDGET.description
    )
    again = ask(site, order)
    if is_spent:
        assert again.reason == Refusal.BUDGET.description
        return
    assert isinstance(again, Release)
    assert Account.from_json(again.account).entries == 1


def test_what_is_revealed_is_decided_by_the_clients_own_settings(
    order: PrepareOrder, tmp_path: Path
) -> None:
    own = {
        "epsilon": 0.25,
        "delta": 1e-7,
        "adjacency": "add-remove",
        "calibration": "analytic",
    }
    made = ask(site_with(tmp_path / "one", **own, declared_records=123), order)
    assert isinstance(made, Release)
    assert {key: getattr(made, key) for key in own} == own
    assert (made.records, made.unsafe) == (123, False)
    usual, seeded = (
        ask(site_with(tmp_path / "two"), order),
        ask(site_with(tmp_path / "three", unsafe_seed=3), order),
    )
    assert (usual.epsilon, usual.records, usual.unsafe) == (
        1.0,
        len(open_data(CONFIG).client(0)),
        False,
    )
    assert made.scale > usual.scale
    assert seeded.unsafe


def test_the_runs_configuration_is_the_servers_and_has_no_say(
    site: GridFederation, order: PrepareOrder, tmp_path: Path
) -> None:
    generous = replace(
        CONFIG, privacy=replace(CONFIG.privacy, epsilon=1e6, unsafe_seed=0)
    )
    settings = context_of(
        in_process(generous, tmp_path / "elsewhere"), "client-000"
    ).node_config
    context_of(site, "client-000").run_config.update({**settings, "partition-id": 1})
    made = ask(site, order)
    assert isinstance(made, Release)
    assert (made.epsilon, made.unsafe, made.records) == (
        1.0,
        False,
        len(open_data(CONFIG).client(0)),
    )
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["client-001", "client-0000", "../elsewhere", ""])
@pytest.mark.parametrize("kind", ["prepare", "train"])
def test_a_client_answers_to_its_own_name_only(
    site: GridFederation,
    server: Server,
    state: RunState,
    order: PrepareOrder,
    tmp_path: Path,
    name: str,
    kind: str,
) -> None:
    assert isinstance(ask(site, order), Release)
    train = server.orders.train(state, "client-000")
    asked = replace({"prepare": order, "train": train}[kind], client=name)
    with pytest.raises(
        OrderError, match=f"Cannot answer for {name!r}: this site is client-000"
    ):
        handlers.answer(asked, site_of(site, "client-000"))
    site.nodes[name] = site.nodes["client-000"]
    refused = ask(site, asked)
    assert isinstance(refused, Failure)
    assert refused.reason == Refusal.ORDER.description
    assert len(list(tmp_path.rglob("release-*.json"))) == 1
    assert [path.name for path in (tmp_path / "clients").iterdir()] == ["client-000"]


NETWORK = """
from torch import nn
def net(shape, features=8):
    layers = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], features), nn.Dropout(0.5))
    layers.width = features
    return layers
"""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The name of somebody's module with a network in it."""
    (tmp_path / "a_clients_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    yield "a_clients_network"
    sys.modules.pop("a_clients_network", None)


@pytest.mark.parametrize("kind", ["prepare", "train"])
def test_code_that_the_clients_own_settings_do_not_name_is_not_imported(
    site: GridFederation,
    server: Server,
    state: RunState,
    order: PrepareOrder,
    network: str,
    kind: str,
) -> None:
    prototype = PrototypeSpec(f"{network}:net").to_json()
    train = replace(server.orders.train(state, "client-000"), prototype=prototype)
    refused = ask(
        site, {"prepare": replace(order, prototype=prototype), "train": train}[kind]
    )
    assert refused.reason == Refusal.ORDER.description
    assert network not in sys.modules


@pytest.mark.parametrize("kind", ["prepare", "train"])
def test_a_network_that_the_clients_own_settings_do_not_list_is_not_built(
    site: GridFederation,
    server: Server,
    state: RunState,
    order: PrepareOrder,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An order could make a site allocate 28.8 GB."""
    monkeypatch.setattr(client_data, "build", fail)
    for spec in (
        PrototypeSpec.of("cnn", width=20000),
        PrototypeSpec.of("mlp", features=8, hidden=10**9),
    ):
        train = replace(
            server.orders.train(state, "client-000"), prototype=spec.to_json()
        )
        refused = ask(
            site,
            {"prepare": replace(order, prototype=spec.to_json()), "train": train}[kind],
        )
        assert refused.reason == Refusal.ORDER.description


@pytest.mark.parametrize("classes", [2, 11, 10**9])
def test_an_order_for_other_classes_than_were_declared_is_refused(
    site: GridFederation,
    server: Server,
    state: RunState,
    order: PrepareOrder,
    classes: int,
) -> None:
    """A head has a row for each: an order could choose how large it is."""
    consistent = replace(
        order, size=ClassEmbeddingScorer(classes, 4).size(order.public)
    )
    for asked in (consistent, server.orders.train(state, "client-000")):
        with pytest.raises(
            OrderError, match=f"Cannot answer for {classes} classes: 10 are declared"
        ):
            handlers.answer(
                replace(asked, classes=classes), site_of(site, "client-000")
            )


def test_code_that_the_clients_own_settings_name_is_used_and_its_dropout_repeats(
    tmp_path: Path, network: str
) -> None:
    config = replace(
        CONFIG,
        method="fedavg",
        prototypes=(PrototypeSpec.of(f"{network}:net", features=6),),
    )
    data = open_data(config)
    server = Server.of(
        config, data.aux, data.test, 10, data.clients, tmp_path / "cache"
    )
    site, train = (
        in_process(config, tmp_path),
        server.orders.train(initial_state(server), "client-000"),
    )
    assert isinstance(train, TrainOrder)
    one, two = ask(site, train), ask(site, train)
    assert isinstance(one, Update)
    assert all(
        np.array_equal(one.weights[name], two.weights[name]) for name in one.weights
    )
    other_options = PrototypeSpec.of(f"{network}:net", features=7).to_json()
    assert (
        ask(site, replace(train, prototype=other_options)).reason
        == Refusal.ORDER.description
    )


METHOD = """
from dataclasses import dataclass
from fedaux.methods.hooks import ClientUpdate, Hooks
from fedaux.config.methods import Method
@dataclass(frozen=True)
class Half(Hooks):
    share: float = 0.5
    def client_update(self, start, trained, work, received, state):
        return ClientUpdate(start + self.share * (trained - start))
half = Method("Half", hooks=Half)
"""


@pytest.fixture
def method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The name of somebody's module with a method in it."""
    (tmp_path / "a_clients_method.py").write_text(METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    yield "a_clients_method:half"
    sys.modules.pop("a_clients_method", None)


def test_a_method_that_the_clients_own_settings_do_not_name_is_not_imported(
    site: GridFederation, server: Server, state: RunState, method: str
) -> None:
    order = server.orders.train(state, "client-000")
    for name in (method, "os:path", "fedaux.methods.scaffold:Scaffold"):
        assert (
            ask(site, replace(order, method=name)).reason == Refusal.ORDER.description
        )
    assert "a_clients_method" not in sys.modules


def test_a_method_that_the_clients_own_settings_name_is_followed_with_their_options(
    site: GridFederation, server: Server, state: RunState, tmp_path: Path, method: str
) -> None:
    order = server.orders.train(state, "client-000")
    own = in_process(
        replace(CONFIG, method=method, method_options=(("share", 0.25),)),
        tmp_path / "own",
    )
    asked = replace(order, method=method, method_options='{"share": 0.25}')
    whole = ask(site, order)
    quarter = ask(own, asked)
    start = order.weights["parameters"]
    moved = whole.weights["parameters"] - start
    assert np.allclose(quarter.weights["parameters"] - start, 0.25 * moved, atol=1e-6)
    for other in (
        order,
        replace(asked, method_options='{"share": 1.0}'),
        replace(asked, method_options="{}"),
    ):
        assert ask(own, other).reason == Refusal.ORDER.description


@pytest.mark.parametrize(
    "change",
    [
        {"method": "fedaux"},
        {"method": "fedavg"},
        {"method": "fedmax"},
        {"method_options": '{"beta": 0.5}'},
        {"method_options": '{"gamma": 1.0}'},
        {"method_options": "["},
        {"optimizer": "lion"},
    ],
    ids=str,
)
def test_training_by_another_method_than_the_clients_own_is_refused(
    server: Server, state: RunState, tmp_path: Path, change: dict[str, str]
) -> None:
    site = in_process(replace(CONFIG, method="fedavgm"), tmp_path)
    order = replace(server.orders.train(state, "client-000"), method="fedavgm")
    assert isinstance(ask(site, order), Update)
    assert ask(site, replace(order, **change)).reason == Refusal.ORDER.description


SECRET = "the patients' mean is 48151623.42"


def fail(*_: Any, **__: Any) -> Any:
    raise ValueError(SECRET)


class Talkative:
    """A scorer that quotes what it sees."""

    name = "class-embedding"
    summarise = staticmethod(fail)

    def size(self, public: Any) -> int:
        return ClassEmbeddingScorer(10).size(public)


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("fedaux.client.releases.make_scorer", lambda *_: Talkative()),
        ("fedaux.client.summaries.class_sums", fail),
        ("fedaux.privacy.mechanism.Summary.__post_init__", fail),
        ("fedaux.client.features.per_record.outputs", fail),
        ("fedaux.client.releases.release", fail),
        ("fedaux.client.loading.load_records", fail),
        ("fedaux.privacy.mechanism.add_noise", fail),
    ],
    ids=["scorer", "embedding", "summary", "features", "release", "records", "noise"],
)
def test_what_an_error_quotes_does_not_leave_the_client(
    site: GridFederation,
    order: PrepareOrder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    target: str,
    value: Any,
) -> None:
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(target, value)
        refused = ask(site, order)
    assert refused == Failure(
        "client-000", Refusal.FAILED.description, Refusal.FAILED.value
    )
    assert SECRET in caplog.text
    assert "prepare failed" in caplog.text
    assert not list(tmp_path.rglob("release-*.json"))


@pytest.mark.parametrize("handler", sorted(app._registered_funcs))
def test_no_handler_lets_an_error_out(
    site: GridFederation, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "deserialize", fail)
    (reply,) = site.grid.send_and_receive(
        [Message(RecordDict(), site.nodes["client-000"], handler)]
    )
    assert reply.error.reason == Refusal.FAILED.value


def test_nothing_is_sent_that_is_not_stored(
    site: GridFederation, order: PrepareOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    assert ask(site, order).reason == Refusal.FAILED.description


def test_no_record_is_read_for_a_release_that_is_refused(
    site: GridFederation, order: PrepareOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(ask(site, order), Release)
    opened = []
    monkeypatch.setattr(Records, "gather", lambda *_: opened.append("gather"))
    for module in (handlers, client_data):
        monkeypatch.setattr(module, "load_records", lambda *_: opened.append("open"))
    assert (
        ask(site, changed(order, {"extractor": "shifted"})).reason
        == Refusal.BUDGET.description
    )
    assert (
        ask(replace_node(site, "x"), replace(order, client="x")).reason
        == Refusal.ORDER.description
    )
    assert opened == []


def replace_node(site: GridFederation, name: str) -> GridFederation:
    return GridFederation(site.grid, {name: site.nodes["client-000"]})


def calls(action: Callable[[], object]) -> int:
    """Calls of Python functions, and of C functions by them."""
    count = 0

    def watch(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_an_order_takes_no_longer_where_more_clients_are_registered(
    tmp_path: Path,
) -> None:
    few, many = (order_of(tmp_path / str(clients), clients) for clients in (3, 300))
    # of thousands; once for each client would be 297 more
    assert abs(calls(many) - calls(few)) < 100


def order_of(folder: Path, clients: int) -> Callable[[], object]:
    """An order to one of so many clients, each with two records, and its reply."""
    folder.mkdir()
    size = round(2 * clients / 0.4)
    np.save(
        folder / "x.npy",
        np.random.default_rng(0).normal(size=(size, 4)).astype(np.float32),
    )
    np.save(folder / "y.npy", np.arange(size) % 2)
    data = DataConfig("npy", str(folder), clients=clients, partition="iid")
    config = replace(CONFIG, method="fedavg", head_only=True, data=data)
    server = make_server(config, cache=folder / "cache")
    site, state = in_process(config, folder, folder / "cache"), initial_state(server)
    server.restore(state)

    def act() -> None:
        reply = ask(site, server.orders.train(state, "client-002"))
        assert isinstance(reply, Update)
        assert reply.records == 2

    act()  # what is cached, is cached now
    return act


def test_an_old_copy_of_a_vault_is_refused_and_a_count_that_was_made_up_is_not(
    order: PrepareOrder, tmp_path: Path
) -> None:
    """Whoever restores a vault, the next order shows what it has signed since; a server
    cannot do that in its place.
    """
    site, vault = (
        site_with(tmp_path, epsilon_total=8.0),
        tmp_path / "clients" / order.client,
    )
    first = ask(site, order)
    shutil.copytree(vault, tmp_path / "copy")
    other = changed(order, {"public": "shifted"})
    account = Account.from_json(ask(site, other).account)
    assert account.entries == 2
    honest = replace(other, known_entries=2, known_signature=account.signature)
    forged = replace(order, known_entries=3, known_signature=account.signature)
    assert (
        ask(site, forged).arrays["values"].tolist() == first.arrays["values"].tolist()
    )
    shutil.rmtree(vault)
    (tmp_path / "copy").rename(vault)
    assert ask(site, honest) == Failure(
        order.client, Refusal.BUDGET.description, Refusal.BUDGET.value
    )
    # as a server could ask that forgets
    assert isinstance(ask(site, replace(honest, known_signature="")), Release)


@pytest.mark.parametrize(
    ("limit", "own", "allowed"), [(2, 1, 2), (2, 3, 3), (100, 1, 100)]
)
def test_an_order_may_ask_for_as_many_epochs_as_the_clients_own_settings_allow(
    server: Server,
    state: RunState,
    tmp_path: Path,
    limit: int,
    own: int,
    allowed: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a limit, one order could keep a site busy for ever."""
    trained: list[int] = []
    result = client_training.train_local

    def short(*args: Any, epochs: int, **options: Any) -> Any:
        trained.append(epochs)
        return result(*args, epochs=1, **options)

    monkeypatch.setattr(client_training, "train_local", short)
    federation = replace(CONFIG.federation, max_epochs=limit)
    site = in_process(
        replace(CONFIG, federation=federation, local=LocalConfig(epochs=own)), tmp_path
    )
    order = server.orders.train(state, "client-000")
    assert isinstance(ask(site, replace(order, epochs=allowed)), Update)
    with caplog.at_level(logging.INFO):
        assert (
            ask(site, replace(order, epochs=allowed + 1)).reason
            == Refusal.ORDER.description
        )
    assert trained == [allowed]
    assert (
        f"Cannot train for {allowed + 1} epochs in a round: this site allows {allowed}."
        in caplog.text
    )


@pytest.mark.parametrize("kind", ["far", "near"])
def test_a_reply_is_the_same_whether_or_not_the_client_warns(
    order: PrepareOrder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    """The server must not learn that a site's records are unlike the public data."""
    if kind == "far":
        moved = {**order.public, "mean": order.public["mean"] + 10}
        order = replace(order, public=moved)
    vault = tmp_path / "warned" / "clients" / order.client
    vault.mkdir(parents=True)
    create_key(vault)
    shutil.copytree(tmp_path / "warned", tmp_path / "silent")

    def reply(folder: str) -> str:
        """The hash of all bytes that are sent."""
        own = site_with(tmp_path / folder, unsafe_seed=1)
        message = Message(serialize(order), own.nodes[order.client], "query.prepare")
        (answered,) = own.grid.send_and_receive([message])
        assert not answered.has_error()
        return answered.content.object_id

    warned = reply("warned")
    assert ("of another kind" in caplog.text) == (kind == "far")
    monkeypatch.setattr(releases, "warn_of_far_features", lambda *given: None)
    assert reply("silent") == warned
