"""The one store of answers: the same question gets the same bytes, and what must not be
lost is stored or not sent.

What is entered in the account, and when, is in tests/unit/privacy/test_account.py.
"""

import logging
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.client import training
from fedaux.client.answers import ONLY_ONCE, AnswerStore
from fedaux.client.kept_state import LocalResult, TrainingSummary
from fedaux.client.site import Site
from fedaux.client.training import KEPT_MODELS, ClientTask, train_plainly
from fedaux.config.sections import PrivacyConfig
from fedaux.core.failures import OrderError, Refusal
from fedaux.flower.error_redaction import refusal_of
from fedaux.messages import PrepareOrder, TrainOrder
from fedaux.methods.hooks import Hooks
from fedaux.privacy.account_file import FILE, read_account
from fedaux.privacy.accounting import BudgetError, Mechanism
from helpers.accounts import fails
from helpers.asked_site import TRAIN, asked_site
from helpers.samples import prepare_order, train_order, weights

PRIVATE = {"epsilon": 1.0, "epsilon_total": 4.0, "private_training": True}
SEEDED = {**PRIVATE, "unsafe_seed": 3}


@pytest.fixture
def store(tmp_path: Path) -> AnswerStore:
    return AnswerStore(tmp_path / "vault", "a", PrivacyConfig(epsilon=1.0))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def never() -> bytes:
    raise AssertionError("it was answered before")


# without noise


@pytest.mark.parametrize("must_store", [False, True])
def test_an_answer_without_noise_is_computed_once(
    store: AnswerStore, must_store: bool
) -> None:
    path = store.folder / "sums" / "answer.bin"
    assert store.without_noise(path, lambda: b"first", must_store) == b"first"
    assert path.read_bytes() == b"first"
    later = AnswerStore(store.folder, "a", PrivacyConfig())  # another process
    assert later.without_noise(path, never, must_store) == b"first"


def test_an_answer_without_noise_costs_nothing_and_is_for_its_owner_only(
    store: AnswerStore,
) -> None:
    path = store.folder / "answer.bin"
    store.without_noise(path, lambda: b"a model")
    assert mode_of(path) == 0o600
    assert mode_of(store.folder) == 0o700
    assert [file.name for file in store.folder.iterdir()] == ["answer.bin"]
    assert store.account().entries == 0


@pytest.mark.parametrize("must_store", [False, True])
def test_an_answer_that_fails_is_computed_by_the_next_attempt(
    store: AnswerStore, must_store: bool
) -> None:
    path = store.folder / "answer.bin"
    with pytest.raises(ZeroDivisionError):
        store.without_noise(path, fails, must_store)
    assert not path.exists()
    assert store.without_noise(path, lambda: b"second", must_store) == b"second"


def full_disk(path: Path, data: bytes, private: bool = False) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_a_warning(
    store: AnswerStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = store.folder / "answer.bin"
    monkeypatch.setattr("fedaux.client.answers.write_atomically", full_disk)
    with caplog.at_level(logging.WARNING):
        assert store.without_noise(path, lambda: b"a model") == b"a model"
    assert caplog.messages == [
        "a computes its answer again if it is lost, as it cannot be stored: [Errno 28] "
        "No space left on device"
    ]
    assert store.without_noise(path, lambda: b"another") == b"another"


def test_a_folder_that_cannot_be_made_is_a_warning(
    store: AnswerStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.folder.write_text("no folder")
    with caplog.at_level(logging.WARNING):
        assert (
            store.without_noise(store.folder / "answer.bin", lambda: b"a model")
            == b"a model"
        )
    assert "a computes its answer again if it is lost" in caplog.text


def test_what_must_be_stored_and_cannot_be_is_not_sent(
    store: AnswerStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two vectors under the same masks would reveal their difference."""
    path = store.folder / "masked.bin"
    with monkeypatch.context() as patch:
        patch.setattr("fedaux.client.answers.write_atomically", full_disk)
        with pytest.raises(OSError, match="No space left"):
            store.without_noise(path, lambda: b"a vector", must_store=True)
    assert not path.exists()
    assert caplog.messages == []
    assert (
        store.without_noise(path, lambda: b"the vector", must_store=True)
        == b"the vector"
    )


def test_what_must_be_stored_needs_its_folder(store: AnswerStore) -> None:
    store.folder.write_text("no folder")
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        store.without_noise(
            store.folder / "masked.bin", lambda: b"a vector", must_store=True
        )


# sums without noise, once


def test_one_request_for_a_sum_is_allowed_as_often_as_it_is_made(
    store: AnswerStore,
) -> None:
    for _ in range(3):
        AnswerStore(store.folder, "a", PrivacyConfig()).only_once(
            "cafe|features", "f00d"
        )
    assert mode_of(store.folder / ONLY_ONCE) == 0o600


def test_another_request_for_the_same_sum_is_refused(store: AnswerStore) -> None:
    store.only_once("cafe|features", "f00d")
    kept = (store.folder / ONLY_ONCE).read_bytes()
    for _ in range(2):
        with pytest.raises(OrderError) as caught:
            store.only_once("cafe|features", "beef")
        assert refusal_of(caught.value) is Refusal.ORDER
    assert str(caught.value) == (
        "Cannot answer: a has taken part in a sum of cafe|features in this run, "
        "without noise, and the difference to a second one could be what one site "
        "sent. Start another run."
    )
    assert (store.folder / ONLY_ONCE).read_bytes() == kept
    store.only_once("cafe|features", "f00d")  # the first one is still allowed


def test_other_sums_and_other_clients_are_counted_for_themselves(
    store: AnswerStore,
) -> None:
    requests = {
        "cafe|features": "1",
        "cafe|models of round 1": "2",
        "beef|features": "3",
    }
    for client in ("a", "b"):
        own = replace(store, client=client)
        for what, request in requests.items():
            own.only_once(what, request + client)
    for client in ("a", "b"):
        for what in requests:
            with pytest.raises(
                OrderError, match=f"{client} has taken part in a sum of"
            ):
                replace(store, client=client).only_once(what, "another")


def test_of_requests_that_are_made_at_once_one_is_allowed(store: AnswerStore) -> None:
    count = 8
    together = threading.Barrier(count)

    def ask(number: int) -> bool:
        together.wait(timeout=60)
        try:
            store.only_once("cafe|features", str(number))
        except OrderError:
            return False
        return True

    with ThreadPoolExecutor(count) as pool:
        allowed = list(pool.map(ask, range(count)))
    assert allowed.count(True) == 1
    store.only_once("cafe|features", str(allowed.index(True)))


def test_what_is_not_written_down_is_not_allowed(
    store: AnswerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("fedaux.client.answers.write_atomically", full_disk)
        with pytest.raises(OSError, match="No space left"):
            store.only_once("cafe|features", "f00d")
    store.only_once("cafe|features", "beef")


# with noise


def ask(
    store: AnswerStore,
    order: PrepareOrder | TrainOrder,
    draw: Callable[[], bytes] = lambda: b"noise",
) -> bytes:
    path = store.folder / "release.json"
    plan = Mechanism(30.0)
    return store.with_noise(
        order,
        "f00d",
        path,
        lambda entries: plan,
        lambda: None,
        lambda chosen, read: draw(),
    )


@pytest.mark.parametrize(
    "order", [prepare_order(), train_order()], ids=lambda order: type(order).__name__
)
def test_an_answer_with_noise_is_entered_once_and_stored(
    store: AnswerStore, order: PrepareOrder | TrainOrder
) -> None:
    def entered() -> bytes:
        (entry,) = read_account(store.folder)[1]  # before anything is drawn
        return f"{entry.request} {entry.mechanism.noise_multiplier}".encode()

    assert ask(store, order, entered) == b"f00d 30.0"
    assert ask(store, order, never) == b"f00d 30.0"
    assert store.account().entries == 1


@pytest.mark.parametrize("make", [prepare_order, train_order])
def test_an_old_copy_of_an_account_answers_neither_releases_nor_training(
    store: AnswerStore, make: Callable[..., PrepareOrder | TrainOrder]
) -> None:
    """What the server has heard of before comes with the order."""
    ask(store, make())
    account = store.account()
    (store.folder / FILE).unlink()
    (store.folder / "release.json").unlink()
    with pytest.raises(BudgetError, match="this is an old copy of the account"):
        ask(store, make(known_entries=1, known_signature=account.signature), never)
    assert ask(store, make(known_entries=1, known_signature="made up")) == b"noise"


def test_a_store_is_that_of_the_clients_account(tmp_path: Path) -> None:
    """Names that read the same records share an account, and so their sums without
    noise.
    """
    own = replace(asked_site(tmp_path), clients=("a", "b"))
    first, second = (AnswerStore.of(own, client) for client in own.clients)
    assert first.folder == second.folder == own.vault
    assert (first.client, second.client) == ("a", "b")
    assert first.privacy == own.config.privacy
    apart = replace(
        own,
        config=replace(
            own.config, data=replace(own.config.data, path="/nowhere/{client}")
        ),
    )
    assert AnswerStore.of(apart, "b").folder == own.vault / "b"
    persons = replace(
        own, config=replace(own.config, data=replace(own.config.data, person="patient"))
    )
    assert AnswerStore.of(persons, "a").person == "patient"


# trained models


RESULT = LocalResult(weights(1.5), 7, TrainingSummary(0.5, 12), 1.5)


def task(folder: Path, order: TrainOrder = TRAIN, **privacy: object) -> ClientTask:
    own = asked_site(folder, head_init="random", privacy={"epsilon": 1.0, **privacy})
    return ClientTask(order, own, Hooks())


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[TrainOrder]:
    """The orders for which a model was trained."""
    orders = []

    def train(task: ClientTask, rows: object) -> LocalResult:
        orders.append(task.order)
        return replace(RESULT, records=len(orders))

    monkeypatch.setattr(training, "_train_plainly", train)
    return orders


def test_a_model_is_trained_once_for_a_question(
    tmp_path: Path, trained: list[TrainOrder]
) -> None:
    # the same question
    order = replace(TRAIN, known_entries=9, plan="0" * 64, sum="{}")
    first, again = (train_plainly(task(tmp_path, one), never) for one in (TRAIN, order))
    assert first.to_bytes() == again.to_bytes()
    other = train_plainly(task(tmp_path, replace(TRAIN, seed=1)), never)
    assert (first.records, other.records) == (1, 2)
    assert [one.seed for one in trained] == [TRAIN.seed, 1]


def test_a_simulated_client_trains_again(
    tmp_path: Path, trained: list[TrainOrder]
) -> None:
    simulated = task(tmp_path)
    simulated = replace(simulated, site=replace(simulated.site, keeps_results=False))
    for _ in range(2):
        train_plainly(simulated, never)
    assert len(trained) == 2
    assert not simulated.path.exists()


def test_a_model_is_stored_whatever_the_server_calls_its_run(
    tmp_path: Path, trained: list[TrainOrder]
) -> None:
    order = replace(TRAIN, run="../../elsewhere")
    train_plainly(task(tmp_path, order), never)
    (path,) = tmp_path.rglob("*.safetensors")
    assert path == task(tmp_path, order).path
    assert path.parent == tmp_path / "vault"
    assert mode_of(path) == 0o600


def test_a_model_without_privacy_never_answers_where_privacy_is_asked_for(
    tmp_path: Path,
) -> None:
    plain, private, seeded = (
        task(tmp_path, TRAIN, **privacy).path for privacy in ({}, PRIVATE, SEEDED)
    )
    assert plain != private
    assert seeded == plain  # anybody can take this noise off


def stored(site: Site, order: TrainOrder, age: int) -> Path:
    """Store a model for an order, as if it was written at this time."""
    item = ClientTask(order, site, Hooks())
    train_plainly(item, never)
    os.utime(item.path, (age, age))
    return item.path


def test_only_the_last_models_of_a_client_are_kept(
    tmp_path: Path, trained: list[TrainOrder]
) -> None:
    own = replace(asked_site(tmp_path), clients=("a", "b"))
    theirs = stored(own, replace(TRAIN, client="b"), 0)
    ours = [stored(own, replace(TRAIN, round=round_), round_) for round_ in (1, 2, 3)]
    ClientTask(TRAIN, own, Hooks()).drop_old()
    assert KEPT_MODELS == 2
    assert [path.exists() for path in ours] == [False, True, True]
    assert theirs.exists()


def test_a_model_that_cannot_be_stored_is_sent(
    tmp_path: Path, trained: list[TrainOrder], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "vault").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        assert train_plainly(task(tmp_path), never).records == 1
    assert "a computes its answer again if it is lost" in caplog.text
