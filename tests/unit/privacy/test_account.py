"""A client's account: entered before a record is read, composed into one total, and
never exceeded.
"""

import hashlib
import json
import math
import shutil
import stat
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.client.releases import noisy_from_bytes, noisy_to_bytes
from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig, FederationConfig, PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.core.io import write_atomically
from fedaux.messages import Release
from fedaux.privacy.account import BudgetStore, account_folder
from fedaux.privacy.account_file import (
    FILE,
    LOOK_REQUEST,
    LOST,
    Entry,
    read_account,
)
from fedaux.privacy.account_key import ACCOUNT_KEY_FILE, create_key, sign, verify_count
from fedaux.privacy.accounting import (
    BudgetError,
    Mechanism,
    release_mechanism,
    round_up,
    total_epsilon,
)
from fedaux.privacy.site_account import SiteAccount

PRIVACY = PrivacyConfig(epsilon=0.1)
RELEASE_MECHANISM = release_mechanism(3, PRIVACY)
TRAINING = Mechanism(40.0, steps=2)


def made(values: tuple[int, ...] = (2**62, -(2**62), 0)) -> Release:
    arrays = {"values": np.array(values, np.int64)}
    return Release(
        "a",
        "s",
        7,
        0.1,
        1e-5,
        "replace-one",
        "opendp",
        2.0**21,
        1e8 / 3,
        1e-7 / 3,
        False,
        "",
        arrays,
    )


def never() -> Release:
    raise AssertionError("private records were read")


def undrawn(mechanism: Mechanism, read: object) -> bytes:
    raise AssertionError("noise was drawn")


def unplanned(_: list[Entry]) -> Mechanism:
    raise AssertionError("another round was planned")


def facts(one: Release) -> dict[str, object]:
    """All but the account, which says what was spent until now."""
    return {
        **asdict(one),
        "account": "",
        "arrays": {name: (a.dtype, a.tolist()) for name, a in one.arrays.items()},
    }


def store(folder: Path, **privacy: Any) -> BudgetStore:
    return BudgetStore(folder, replace(PRIVACY, **privacy))


def release(
    folder: Path,
    request: str,
    read: Any = made,
    known_entries: int = 0,
    signature: str = "",
    *,
    mechanism: Mechanism = RELEASE_MECHANISM,
    draw: Any = lambda _, item: noisy_to_bytes(item),
    **privacy: Any,
) -> Release:
    """Release what `read` returns, as a client does."""
    account = store(folder, **privacy)
    path = folder / f"release-{request}.json"
    content = account.answer(
        request, path, lambda _: mechanism, read, draw, known_entries, signature
    )
    return replace(
        noisy_from_bytes(Release, content), account=account.account().to_json()
    )


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def test_the_same_request_gets_the_same_bytes_after_a_restart(tmp_path: Path) -> None:
    tmp_path = tmp_path / "not" / "there"
    assert facts(release(tmp_path, "x")) == facts(made())
    assert facts(release(tmp_path, "x", never)) == facts(made())
    # also under other settings
    assert facts(release(tmp_path, "x", never, epsilon=9.0)) == facts(made())


def test_any_other_request_is_refused_before_a_record_is_read(tmp_path: Path) -> None:
    release(tmp_path, "x")
    for other in ("y", "x ", "xx"):
        with pytest.raises(
            BudgetError, match=r"another release is refused.*owner allows 0\.1"
        ):
            release(tmp_path, other, never)
    assert facts(release(tmp_path, "x", never)) == facts(made())
    assert [line.get("steps") for line in lines(tmp_path)] == [None, 1, 0]


def test_releases_go_on_for_as_long_as_the_composed_total_allows(
    tmp_path: Path,
) -> None:
    """Three releases at 0.1 compose to about 0.18 (√3, not 3): the total is what
    counts, not how many there were.
    """
    for mark, request in enumerate("xyz"):
        found = release(
            tmp_path, request, lambda mark=mark: made((mark,)), epsilon_total=0.185
        )
    account = Account.from_json(found.account)
    assert account.entries == 3
    assert account.epsilon == total_epsilon(
        [RELEASE_MECHANISM] * 3, 1e-5, "replace-one"
    )
    assert 0.15 < account.epsilon < 0.185
    with pytest.raises(
        BudgetError,
        match=r"owner allows 0\.185. So far it is 0\.1[0-9]+, .*privacy\.epsilon_total",
    ):
        release(tmp_path, "w", never, epsilon_total=0.185)
    # what was released stays released, even if less is allowed now
    for mark, request in enumerate("xyz"):
        assert release(tmp_path, request, never).arrays["values"].tolist() == [mark]


def test_without_a_total_there_is_one_release_and_one_look(tmp_path: Path) -> None:
    looks = {"look_epsilon": PRIVACY.epsilon}
    for request in ("one", f"{LOOK_REQUEST}one"):
        release(tmp_path, request, **looks)
        with pytest.raises(BudgetError, match="is refused"):
            release(tmp_path, f"{request} more", never, **looks)
    # both were answered, and a total would allow more
    release(tmp_path, "two", **looks, epsilon_total=10 * PRIVACY.epsilon)


def test_an_account_that_is_behind_what_the_server_heard_of_answers_nothing(
    tmp_path: Path,
) -> None:
    vault, old = tmp_path / "vault", tmp_path / "old"
    release(vault, "x", epsilon_total=1.0)
    shutil.copytree(vault, old)
    told = Account.from_json(release(vault, "y", epsilon_total=1.0).account)
    assert told.entries == 2
    known_entries = {"known_entries": 2, "signature": told.signature}
    with pytest.raises(
        BudgetError,
        match="has 1 entries, but the server has recorded 2, so this is an old copy",
    ):
        release(old, "x", never, **known_entries)
    with pytest.raises(BudgetError, match="old copy"):
        store(old).answer(
            "y",
            old / "model",
            lambda entries: TRAINING,
            never,
            undrawn,
            2,
            told.signature,
        )
    assert facts(release(old, "x", never, known_entries=1)) == facts(made())
    assert facts(release(vault, "x", never, **known_entries)) == facts(made())


def test_a_count_that_the_client_never_signed_does_not_shut_it_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = Account.from_json(release(tmp_path, "x").account)
    other = Account.from_json(release(tmp_path / "other", "x").account)
    assert told.signature != other.signature
    # none, of another count, of another client
    for signature in ("", told.signature, other.signature, "ü"):
        assert facts(release(tmp_path, "x", never, 10**6, signature)) == facts(made())
    assert "does not show its signature: ignored" in caplog.text


@pytest.mark.parametrize("lost", ["account.key", "all"])
def test_an_account_that_has_lost_its_key_believes_every_count(
    tmp_path: Path, lost: str
) -> None:
    """One that an older version began has none, nor has a new one in the place of one
    that is gone.
    """
    signature = Account.from_json(release(tmp_path, "x").account).signature
    for path in [
        path for path in tmp_path.iterdir() if path.name == lost or lost == "all"
    ]:
        path.unlink()
    with pytest.raises(BudgetError, match="old copy"):
        release(tmp_path, "x", never, 2, signature)
    # else the next order would be answered
    assert not (tmp_path / "account.key").exists()
    with pytest.raises(BudgetError, match="old copy"):
        release(tmp_path, "x", never, 2, signature)


def test_an_answer_that_was_lost_is_not_drawn_again_for_nothing(tmp_path: Path) -> None:
    release(tmp_path, "x", epsilon_total=0.15)
    (path,) = tmp_path.glob("release-*.json")
    path.unlink()
    assert (
        Account.from_json(
            release(tmp_path, "x", lambda: made((1,)), epsilon_total=0.15).account
        ).entries
        == 2
    )
    path.unlink()
    with pytest.raises(BudgetError, match="another release is refused"):
        release(tmp_path, "x", never, epsilon_total=0.15)


@pytest.mark.parametrize(
    "change",
    [{"adjacency": "add-remove", "declared_records": 9}, {"unit": "person"}],
    ids=str,
)
def test_one_account_keeps_one_promise(tmp_path: Path, change: dict[str, Any]) -> None:
    release(tmp_path, "x")
    with pytest.raises(
        BudgetError,
        match="What one promise cost cannot be expressed in terms of another",
    ):
        release(tmp_path, "x", never, **change)


def test_who_sent_nothing_under_noise_has_spent_nothing_and_has_no_folder(
    tmp_path: Path,
) -> None:
    assert store(tmp_path / "new").account() == Account(
        0.0, 1e-5, "replace-one", "record", 0
    )
    assert not (tmp_path / "new").exists()


def test_noise_from_a_known_seed_is_worth_nothing_for_ever(tmp_path: Path) -> None:
    release(tmp_path, "x", unsafe_seed=1)
    assert store(tmp_path).account().epsilon == float("inf")


def test_names_that_read_the_same_records_share_an_account(tmp_path: Path) -> None:
    data = DataConfig("npy", "records", partition="own", classes=("a", "b"))
    sites = FederationConfig(sites=("berlin", "paris"))
    shared = Config(data=data, federation=sites)
    apart = replace(shared, data=replace(data, path="records/{client}"))
    assert (
        account_folder(shared, tmp_path, "berlin")
        == account_folder(shared, tmp_path, "paris")
        == tmp_path
    )
    assert account_folder(apart, tmp_path, "berlin") == tmp_path / "berlin"
    # simulated ones are disjoint
    assert account_folder(Config(), tmp_path, "client-001") == tmp_path / "client-001"


@pytest.mark.parametrize(
    "error",
    [RuntimeError("not solved"), KeyboardInterrupt()],
    ids=["error", "interrupt"],
)
def test_a_failed_attempt_to_read_counts_but_may_be_repeated(
    tmp_path: Path, error: BaseException
) -> None:
    def fail() -> Release:
        raise error

    for _ in range(2):
        with pytest.raises(type(error)):
            release(tmp_path, "x", fail)
    with pytest.raises(BudgetError):
        release(tmp_path, "y", never)
    assert facts(release(tmp_path, "x", made)) == facts(made())
    assert facts(release(tmp_path, "x", never)) == facts(made())
    assert [line.get("steps") for line in lines(tmp_path)] == [None, 1, 0]


def test_a_release_that_fails_once_noise_was_drawn_is_spent(tmp_path: Path) -> None:
    """Whether it fails may depend on what was drawn."""

    def fail(mechanism: Mechanism, item: Release) -> bytes:
        raise RuntimeError("not solved")

    with pytest.raises(RuntimeError, match="not solved"):
        release(tmp_path, "x", draw=fail)
    assert [line.get("steps") for line in lines(tmp_path)] == [None, 1, 0]
    assert not list(tmp_path.glob("release-*.json"))
    with pytest.raises(BudgetError, match="another release is refused"):
        release(tmp_path, "x", never)
    assert (
        Account.from_json(release(tmp_path, "x", epsilon_total=0.15).account).entries
        == 2
    )


def test_the_files_are_complete_readable_and_for_their_owner_only(
    tmp_path: Path,
) -> None:
    release(tmp_path, "x")
    visible = sorted(
        path for path in tmp_path.iterdir() if not path.name.startswith(".")
    )
    assert [path.name.split("-")[0] for path in visible] == [
        FILE,
        "account.key",
        "release",
    ]
    assert [path.stat().st_mode & 0o777 for path in visible] == [0o600] * 3
    assert json.loads(visible[2].read_text()) == {
        **{
            key: value
            for key, value in asdict(made()).items()
            if key not in ("arrays", "account")
        },
        "values": [2**62, -(2**62), 0],
    }
    head, entry, drawn = lines(tmp_path)
    assert drawn == {
        **entry,
        "steps": 0,
        "answer": hashlib.sha256(visible[2].read_bytes()).hexdigest(),
    }
    assert head == {"adjacency": "replace-one", "unit": "record"}
    noise = RELEASE_MECHANISM.noise_multiplier
    assert entry == {
        "request": "x",
        "noise": noise,
        "rate": 1.0,
        "steps": 1,
        "size": 3,
        "grid": 2.0**16,
        "unsafe": False,
        "answer": "",
    }


@pytest.mark.parametrize("alike", [True, False])
def test_of_threads_that_ask_at_once_one_makes_a_release(
    tmp_path: Path, alike: bool
) -> None:
    """Who asks the same gets the same; who asks anything else is refused."""
    barrier, calls = threading.Barrier(8), []

    def ask(mark: int) -> list[int]:
        def make() -> Release:
            calls.append(mark)
            time.sleep(0.05)
            return made((mark,))

        barrier.wait()
        try:
            return list(
                release(tmp_path, "x" if alike else f"request {mark}", make)
                .arrays["values"]
                .tolist()
            )
        except BudgetError:
            return []

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert len(calls) == 1
    assert found == [calls if alike or [mark] == calls else [] for mark in range(8)]


def test_a_request_is_on_disk_before_a_record_is_read_and_a_release_before_it_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError("disk full")

    def make() -> Release:
        assert [line.get("request") for line in lines(tmp_path)] == [None, "x"]
        assert not list(tmp_path.glob("release-*.json"))
        monkeypatch.setattr("os.fsync", full)
        return made()

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="disk full"):
            release(tmp_path / "never", "x", never)
    with pytest.raises(OSError, match="disk full"):
        release(tmp_path, "x", make)
    monkeypatch.undo()
    # the first was never seen
    assert facts(release(tmp_path, "x", lambda: made((1, 2)))) == facts(made((1, 2)))
    (path,) = tmp_path.glob("release-*.json")
    path.write_text("{")
    # a damaged one would be paid for again
    with pytest.raises(BudgetError, match="another release is refused"):
        release(tmp_path, "x", never)
    assert path.read_text() == "{"  # and what is refused deletes nothing


def test_a_line_that_was_not_finished_was_not_spent_and_is_removed_by_the_next_order(
    tmp_path: Path,
) -> None:
    """A line that is still being written is another process's business: reading the
    total writes nothing.
    """
    release(tmp_path, "x")
    before = store(tmp_path).account()
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"request": "y", "noi')  # the machine stopped here
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert store(tmp_path).account() == before
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == content
    release(tmp_path, "z", epsilon_total=1.0)
    assert [line.get("request") for line in lines(tmp_path)] == [
        None,
        "x",
        "x",
        "z",
        "z",
    ]


@pytest.mark.parametrize("damage", ["{", '{"request": "x"}', "[]", "nonsense"])
def test_a_damaged_account_answers_nothing(tmp_path: Path, damage: str) -> None:
    release(tmp_path, "x")
    with (tmp_path / FILE).open("a") as file:
        file.write(f"{damage}\n")
    with pytest.raises(BudgetError, match=r"is damaged, .*Restore the newest copy"):
        release(tmp_path, "x", never)


def test_an_attempt_that_failed_is_taken_up_again_at_the_noise_of_its_entry_and_at_no_other(
    tmp_path: Path,
) -> None:
    def fails() -> Release:
        raise OSError("the disk is gone")

    half = replace(
        RELEASE_MECHANISM, noise_multiplier=2 * RELEASE_MECHANISM.noise_multiplier
    )
    for spend in (replace(half, size=10**9), RELEASE_MECHANISM, RELEASE_MECHANISM):
        with pytest.raises(OSError, match="gone"):
            release(tmp_path, "x", fails, mechanism=spend, epsilon_total=1.0)
    assert len(lines(tmp_path)) == 1 + 2
    assert facts(release(tmp_path, "x", epsilon_total=1.0)) == facts(made())
    other = replace(RELEASE_MECHANISM, size=5)
    # it is stored by now
    assert facts(release(tmp_path, "x", never, mechanism=other)) == facts(made())
    assert len(lines(tmp_path)) == 1 + 2 + 1
    next(tmp_path.glob("release-*.json")).unlink()
    # a cheaper attempt does not pay for a second answer at the old noise
    with pytest.raises(OSError, match="gone"):
        release(tmp_path, "x", fails, mechanism=half, epsilon_total=1.0)
    release(tmp_path, "x", epsilon_total=1.0)
    assert [line.get("steps") for line in lines(tmp_path)] == [None, 1, 1, 0, 1, 1, 0]


def train(
    folder: Path,
    draw: Any,
    request: str = "round 1",
    read: Any = lambda: None,
    plan: Any = None,
    **privacy: Any,
) -> bytes:
    """The model of this request, as it can be sent."""
    chosen = plan or (lambda entries: TRAINING)
    account = store(folder, **{"epsilon_total": 1.0, **privacy})
    answer = account.answer(request, folder / request, chosen, read, draw)
    assert (folder / request).read_bytes() == answer
    return answer


def test_the_same_training_is_paid_for_once_and_its_model_stays(tmp_path: Path) -> None:
    assert train(tmp_path, lambda mechanism, read: b"a model") == b"a model"
    assert train(tmp_path, undrawn, read=never, plan=unplanned) == b"a model"
    assert store(tmp_path).account().entries == 1
    assert (
        train(tmp_path, lambda mechanism, read: b"another", request="round 2")
        == b"another"
    )
    assert store(tmp_path).account().entries == 2


class Killed(BaseException):
    """A process that ends here."""


@pytest.mark.parametrize("stage", ["read", "draw"])
def test_a_killed_training_goes_on_at_the_noise_of_its_entry(
    tmp_path: Path, stage: str
) -> None:
    def killed(*_: Any) -> bytes:
        assert lines(tmp_path)[-1]["steps"] == TRAINING.steps  # entered first
        raise Killed

    for _ in range(3):
        with pytest.raises(Killed):
            train(tmp_path, **{"draw": undrawn, stage: killed})
    drawn: list[Mechanism] = []

    def draw(mechanism: Mechanism, read: object) -> bytes:
        drawn.append(mechanism)
        return b"a model"

    train(tmp_path, draw)
    assert drawn == [TRAINING]
    assert [line.get("steps") for line in lines(tmp_path)] == [None, 2, 0]


def test_the_noise_is_planned_as_if_an_attempt_that_left_nothing_had_not_been(
    tmp_path: Path,
) -> None:
    """Else the noise of the next attempt would be another, and it would be paid for
    again.
    """
    seen: list[list[str]] = []

    def plan(entries: list[Entry]) -> Mechanism:
        seen.append([entry.request for entry in entries])
        return TRAINING

    for request in ("round 1", "round 2"):
        for _ in range(2):
            with pytest.raises(Killed):
                train(tmp_path, undrawn, request, read=kill, plan=plan)
        train(tmp_path, lambda mechanism, read: b"a model", request, plan=plan)
    assert seen == [[]] * 3 + [["round 1"]] * 3


def kill() -> None:
    raise Killed


def killed_at_closing(
    patch: pytest.MonkeyPatch, folder: Path, request: str, content: bytes
) -> None:
    """Play an attempt whose process is killed when its answer is written and its entry
    not yet closed.
    """

    def draw(mechanism: Mechanism, read: object) -> bytes:
        patch.setattr(BudgetStore, "_append", lambda self, entry: kill())
        return content

    append = BudgetStore._append
    with pytest.raises(Killed):
        train(folder, draw, request)
    patch.setattr(BudgetStore, "_append", append)


def ask_elsewhere(folder: Path, content: bytes) -> bytes:
    """Answer the question of round 1 in another place, as the next attempt of a secure
    sum does.
    """
    account = store(folder, epsilon_total=1.0)
    return account.answer(
        "round 1",
        folder / "elsewhere",
        lambda _: TRAINING,
        lambda: None,
        lambda *_: content,
    )


def test_a_model_that_was_stored_when_the_process_ended_is_the_one_that_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_at_closing(monkeypatch, tmp_path, "round 1", b"a model")
    assert train(tmp_path, undrawn, read=never) == b"a model"
    assert [line.get("steps") for line in lines(tmp_path)] == [None, 2, 0]


def test_what_was_stored_at_less_noise_is_not_sent_at_the_price_of_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_at_closing(monkeypatch, tmp_path, "round 1", b"little noise")
    ask_elsewhere(tmp_path, b"of another place")
    cheaper = replace(TRAINING, noise_multiplier=2 * TRAINING.noise_multiplier)
    with pytest.raises(Killed):
        train(tmp_path, undrawn, read=kill, plan=lambda _: cheaper)
    assert (
        train(tmp_path, lambda *_: b"much noise", plan=lambda _: cheaper)
        == b"much noise"
    )


def test_a_stored_model_that_was_changed_is_not_sent(tmp_path: Path) -> None:
    train(tmp_path, lambda mechanism, read: b"a model")
    (tmp_path / "round 1").write_bytes(b"a model that was swapped")
    assert train(tmp_path, lambda mechanism, read: b"another") == b"another"
    assert store(tmp_path).account().entries == 2


def test_one_entry_serves_one_of_two_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts of a secure sum are one question with answers in two places: an open
    entry must not pay for both.
    """
    killed_at_closing(monkeypatch, tmp_path, "round 1", b"of the first attempt")
    assert ask_elsewhere(tmp_path, b"second") == b"second"
    assert train(tmp_path, lambda *_: b"first again") == b"first again"
    assert [line.get("steps") for line in lines(tmp_path)] == [None, 2, 0, 2, 0]


def test_training_that_fails_by_itself_is_another_round_when_it_is_repeated(
    tmp_path: Path,
) -> None:
    """Whether it fails may depend on what was drawn: to draw again and again under one
    entry would reveal more.
    """

    def fails(mechanism: Mechanism, read: object) -> bytes:
        raise ValueError("the noisy sum has a sign that somebody asked for")

    with pytest.raises(ValueError, match="somebody asked for"):
        train(tmp_path, fails)
    train(tmp_path, lambda mechanism, read: b"a model")
    assert [line.get("steps") for line in lines(tmp_path)] == [None, 2, 0, 2, 0]


def test_what_cannot_be_planned_costs_nothing(tmp_path: Path) -> None:
    def plan(entries: list[Entry]) -> Mechanism:
        raise ValueError("the order does not fit")

    with pytest.raises(ValueError, match="does not fit"):
        train(tmp_path, undrawn, read=never, plan=plan)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("gone", ["model", "account"])
def test_a_model_that_the_account_does_not_vouch_for_is_paid_for_again(
    tmp_path: Path, gone: str
) -> None:
    train(tmp_path, lambda mechanism, read: b"first")
    (tmp_path / {"model": "round 1", "account": FILE}[gone]).unlink()
    assert train(tmp_path, lambda mechanism, read: b"second") == b"second"
    assert store(tmp_path).account().entries == {"model": 2, "account": 1}[gone]


def test_a_model_with_seeded_noise_is_none_for_settings_without_a_seed(
    tmp_path: Path,
) -> None:
    train(tmp_path, lambda mechanism, read: b"seeded", unsafe_seed=1)
    assert train(tmp_path, lambda mechanism, read: b"private") == b"private"


FATES = [
    "not planned",
    "not read",
    "killed while reading",
    "not drawn",
    "killed while drawing",
    "not stored",
    "killed once stored",
    "answered",
    "lost",  # from the disk, later
]


@dataclass
class Naive:
    """One request, by the rule in words: an entry from which nothing left serves the
    next attempt.
    """

    cost: int = 0
    open: bool = False  # an entry was made, and nothing has left
    stored: bool = False

    def attempt(self, fate: str) -> None:
        if fate == "lost":
            self.stored = False
        elif self.stored:
            self.open = self.open and fate == "killed once stored"
        elif fate != "not planned":
            self.cost += not self.open
            self.open = fate not in ("not drawn", "answered")
            self.stored = fate in ("killed once stored", "answered")


class Failed(Exception):
    """An attempt that went wrong."""


class KilledOnceStored(BudgetStore):
    """A store whose process is killed before it closes an entry."""

    def _append(self, entry: Entry) -> None:
        if entry.mechanism.steps == 0:
            raise Killed
        super()._append(entry)


@given(st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from(FATES)), max_size=12))
def test_what_attempts_cost_is_what_the_rule_says(
    attempts: list[tuple[str, str]],
) -> None:
    """Against a naive model, for every sequence of faults; what was answered once never
    changes while it is stored.
    """
    expected = {"x": Naive(), "y": Naive()}
    answers: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (request, fate) in enumerate(attempts):
            expected[request].attempt(fate)
            if fate == "lost":
                (folder / request).unlink(missing_ok=True)
                answers.pop(request, None)
                continue
            answer = attempt(folder, request, fate, f"answer {number}".encode())
            if answer:
                assert answers.setdefault(request, answer) == answer
            found = Counter(
                entry.request
                for entry in read_account(folder)[1]
                if entry.mechanism.steps > 0
            )
            assert found == {
                name: one.cost for name, one in expected.items() if one.cost
            }


def attempt(folder: Path, request: str, fate: str, content: bytes) -> bytes:
    """Ask once; the answer, or nothing if there was none."""

    def when(wanted: str, error: type[BaseException]) -> None:
        if fate == wanted:
            raise error

    def plan(entries: list[Entry]) -> Mechanism:
        when("not planned", Failed)
        return Mechanism(100.0)

    def read() -> None:
        when("not read", Failed)
        when("killed while reading", Killed)

    def draw(mechanism: Mechanism, data: None) -> bytes:
        when("not drawn", Failed)
        when("killed while drawing", Killed)
        return content

    def full(path: Path, data: bytes, private: bool = False) -> None:
        if path.name == request:
            raise OSError("disk full")
        write_atomically(path, data, private)

    kind = KilledOnceStored if fate == "killed once stored" else BudgetStore
    with pytest.MonkeyPatch.context() as patch:
        if fate == "not stored":
            patch.setattr("fedaux.privacy.account.write_atomically", full)
        try:
            return kind(folder, replace(PRIVACY, epsilon_total=50.0)).answer(
                request, folder / request, plan, read, draw
            )
        except (Failed, Killed, OSError):
            return b""


def test_a_key_is_made_once_and_private(tmp_path: Path) -> None:
    create_key(tmp_path)
    key = (tmp_path / ACCOUNT_KEY_FILE).read_bytes()
    create_key(tmp_path)
    assert (tmp_path / ACCOUNT_KEY_FILE).read_bytes() == key
    assert stat.S_IMODE((tmp_path / ACCOUNT_KEY_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("left", [None, b"", b"half"])
def test_a_key_that_is_not_whole_is_none(tmp_path: Path, left: bytes | None) -> None:
    if left is not None:
        (tmp_path / ACCOUNT_KEY_FILE).write_bytes(left)
    assert sign(tmp_path, 3) == ""
    assert verify_count(tmp_path, 3, "")
    create_key(tmp_path)
    assert verify_count(tmp_path, 3, sign(tmp_path, 3))
    for forged in (sign(tmp_path, 2), sign(tmp_path, 3)[:-1], ""):
        assert not verify_count(tmp_path, 3, forged)


@pytest.mark.parametrize("missing", [1, 3])
def test_nothing_is_left_and_the_count_is_what_the_server_has_heard(
    tmp_path: Path, missing: int
) -> None:
    account = store(tmp_path, epsilon_total=1.0)
    account.answer(
        "training x",
        tmp_path / "model",
        lambda entries: Mechanism(20.0),
        made,
        lambda *_: b"",
    )
    before = account.account()
    assert account.write_off(1 + missing) == missing
    after = account.account()
    assert before.epsilon < 0.9
    assert 1.0 <= after.epsilon < 1.02
    assert after.entries == 1 + missing
    assert [
        entry.request
        for entry in read_account(tmp_path)[1]
        if entry.mechanism.steps > 0
    ][1:] == [LOST] * missing
    with pytest.raises(BudgetError, match="training is refused"):
        account.answer(
            "training y",
            tmp_path / "other",
            lambda entries: Mechanism(1000.0),
            never,
            undrawn,
        )
    account.answer(
        "training x", tmp_path / "model", unplanned, never, undrawn, 1 + missing
    )


def test_a_vault_that_is_gone_altogether_is_written_off_once(tmp_path: Path) -> None:
    account = store(tmp_path / "new", epsilon_total=1.0)
    assert account.write_off(2) == 2
    spent = account.account().epsilon
    assert 1.0 <= spent < 1.02
    with pytest.raises(BudgetError, match="has 2 entries, and of 2, none is missing"):
        account.write_off(2)
    account.write_off(3)  # nothing was left, so it costs no more
    assert account.account().epsilon == pytest.approx(spent, rel=1e-3)
    assert account.account().entries == 3


SCORES, TRAINED = release_mechanism(2, PRIVACY), Mechanism(6.0, 1.0, 3, 650)


def site_account(folder: Path, **privacy: int) -> SiteAccount:
    account = store(folder, epsilon_total=3.0, **privacy)
    account.answer(
        "x", folder / "scores", lambda entries: SCORES, made, lambda *_: b"scores"
    )
    account.answer(
        "training round 1",
        folder / "model",
        lambda entries: TRAINED,
        made,
        lambda *_: b"model",
    )
    return SiteAccount.read(folder, PRIVACY.delta)


def test_every_release_and_every_round_of_training_has_a_row(tmp_path: Path) -> None:
    assert site_account(tmp_path).rows() == [
        ("1", "release", f"{SCORES.noise_multiplier:.4g}", "1", "1"),
        ("2", "private training", "6", "1", "3"),
    ]


def test_the_statement_rounds_the_composed_total_up_and_names_its_neighbours(
    tmp_path: Path,
) -> None:
    total = total_epsilon([SCORES, TRAINED], PRIVACY.delta, PRIVACY.adjacency)
    statement, printed = site_account(tmp_path).statement(), round_up(total)
    assert (
        f"(releases: 1, rounds of private training: 1) costs at most ε = {printed} at "
        "δ = 1e-05" in statement
    )
    assert float(printed) > total
    assert (
        "for one record of a client exchanged for any other, whether or not it arrived"
        in statement
    )


def test_a_folder_without_an_account_has_spent_nothing(tmp_path: Path) -> None:
    assert SiteAccount.read(tmp_path, 1e-5).epsilon == 0.0


def test_noise_from_a_known_seed_makes_the_account_worthless(tmp_path: Path) -> None:
    owner = site_account(tmp_path, unsafe_seed=1)
    assert "NOT PRIVATE" in owner.statement()
    assert owner.epsilon == math.inf
    assert owner.to_dict()["epsilon"] is None  # no number stands beside the words


def test_what_was_written_off_is_said(tmp_path: Path) -> None:
    site_account(tmp_path)
    store(tmp_path, epsilon_total=3.0).write_off(4)
    owner = SiteAccount.read(tmp_path, PRIVACY.delta)
    assert [kind for _, kind, *_ in owner.rows()] == [
        "release",
        "private training",
        "written off",
        "written off",
    ]
    assert (
        "(releases: 1, rounds of private training: 1, written off: 2) costs at most ε "
        "= 3" in owner.statement()
    )


# as it was written before entries held their mechanism
STORED = (
    b'{"adjacency": "replace-one", "unit": "record"}\n'
    b'{"request": "x", "noise": 36.2, "rate": 1.0, "steps": 1, "size": 3, '
    b'"grid": 65536.0, "unsafe": false, "answer": ""}\n'
    b'{"request": "x", "noise": 36.2, "rate": 1.0, "steps": 0, "size": 3, '
    b'"grid": 65536.0, "unsafe": false, "answer": "2d711642b726b04401627ca9fbac32f5c85'
    b'30fb1903cc4db02258717921a4881"}\n'
    b'{"request": "training 7", "noise": 40.0, "rate": 0.25, "steps": 2, "size": 9, '
    b'"grid": 1073741824.0, "unsafe": false, "answer": ""}\n'
    b'{"request": "training 7", "noise": 40.0, "rate": 0.25, "steps": 0, "size": 9, '
    b'"grid": 1073741824.0, "unsafe": false, "answer": ""}\n'
)


def test_the_file_of_an_account_is_read_and_written_as_ever(tmp_path: Path) -> None:
    """Entries of older versions still count, and what is written is the same to the
    byte.
    """

    def training_fails(mechanism: Mechanism, read: object) -> bytes:
        raise FloatingPointError

    old = tmp_path / "old"
    old.mkdir()
    (old / FILE).write_bytes(STORED)
    scores = Mechanism(36.2, size=3, grid=65536.0)
    training = Mechanism(40.0, 0.25, 2, 9)
    _, entries = read_account(old)
    assert [(entry.mechanism, entry.state) for entry in entries] == [
        (scores, "entered"),
        (replace(scores, steps=0), "stored"),
        (training, "entered"),
        (replace(training, steps=0), "spent"),
    ]

    new = tmp_path / "new"
    account = store(new, epsilon=100.0)
    path = new / "answer"
    account.answer("x", path, lambda _: scores, nothing, lambda *_: b"x")
    with pytest.raises(FloatingPointError):
        account.answer("training 7", path, lambda _: training, nothing, training_fails)
    assert (new / FILE).read_bytes() == STORED
    for content in (STORED + b'{"request": "y"}\n', STORED.replace(b"rate", b"rates")):
        (old / FILE).write_bytes(content)
        with pytest.raises(BudgetError, match="is damaged"):
            read_account(old)


def nothing() -> bytes:
    return b""
