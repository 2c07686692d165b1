"""What a run is doing, from its events alone; and the file of it, from the first moment
to the end.
"""

import json
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig, FederationConfig, PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.core.failures import NO_ANSWER, Failure
from fedaux.core.progress import (
    Notice,
    OrdersSent,
    OwnersAwaited,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesConnected,
    WorkProgress,
)
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.runs import status as module
from fedaux.runs.status import STATUS_FILE, RunStatus, SiteRecord, is_alive, status_file

CONFIG = Config(
    rounds=5,
    data=DataConfig(partition="own"),
    privacy=PrivacyConfig(epsilon=1.0, epsilon_total=4.0),
    federation=FederationConfig(sites=("berlin", "paris"), timeout=3600.0),
)
RESULT = RoundResult(
    1, {"mlp": 0.5}, {"berlin": ClientMetrics(9, 0.1, 1.0)}, seconds={"train": 2.0}
)
SPENT = Account(1.5, 1e-5, "replace-one", "record", 2)
ASKED = OrdersSent("train", 1, ("berlin", "paris"), 100)
GOOD = ReplyReceived("train", 1, "berlin", 60, SPENT)
GONE = ReplyReceived(
    "train", 1, "paris", 0, failure=Failure("paris", "gone\x1b[2J", NO_ANSWER)
)


def after(
    *events: ProgressEvent, status: RunStatus | None = None, step: float = 10.0
) -> RunStatus:
    """The events at 10, 20, 30 …, or after what was."""
    status = status or RunStatus.start(CONFIG, None, 0.0)
    for event in events:
        status.update(event, status.last_progress + step)
    return status


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        (SitesConnected("sites connected", 1, 2, phase="connect"), "connect"),
        (SitesConnected("sites connected", 2, 2), "start"),
        (RunStarted("FedAUX", "", (), 5), "prepare"),
        (WorkProgress("features", 1, 2, phase="features"), "features"),
        (OrdersSent("release", None, ("berlin",), 1), "score"),
        (OrdersSent("sums", None, ("berlin",), 1), "score"),
        (ASKED, "train"),
        (RoundFinished(RESULT, 5, ""), "between rounds"),
        (Notice("hello"), "start"),
        (OwnersAwaited("waiting", ("berlin",)), "approval"),
        (WorkProgress("files", 1, 2), "start"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_event_says_which_phase_it_is_and_is_a_sign_of_life(
    event: ProgressEvent, phase: str
) -> None:
    since = 0.0 if phase == "start" else 10.0
    status = after(event)
    assert (status.phase, status.phase_since) == (phase, since)
    status = after(event, status=status)
    assert (status.phase_since, status.last_progress) == (since, 20.0)


def test_sites_say_what_they_run() -> None:
    status = after(
        SitesConnected(
            "sites connected",
            2,
            2,
            versions={"berlin": "fedaux 1", "paris": "fedaux 2"},
        )
    )
    assert [site.versions for site in status.sites.values()] == ["fedaux 1", "fedaux 2"]


def test_owners_that_are_waited_for_are_known_until_the_run_goes_on() -> None:
    status = after(OwnersAwaited("waiting", ("berlin", "paris")))
    status = after(OwnersAwaited("waiting", ("paris",)), status=status)
    assert [site.asked_for for site in status.sites.values()] == ["", "approval"]
    assert status.sites["paris"].asked_at == status.phase_since == 10.0
    after(WorkProgress("features", 1, 2, phase="features"), status=status)
    assert [site.asked_for for site in status.sites.values()] == ["", ""]


def test_a_site_is_asked_answers_fails_and_says_what_it_has_spent() -> None:
    status = after(ASKED)
    assert [site.asked_for for site in status.sites.values()] == ["train", "train"]
    status = after(GOOD, status=status)
    assert status.sites["berlin"] == SiteRecord(
        "", 10.0, 20.0, 1, epsilon=1.5, delta=1e-5
    )
    assert status.sites["paris"] == SiteRecord("train", 10.0)
    assert (status.bytes_sent, status.bytes_received, status.budget) == (100, 60, 4.0)
    paris = after(GONE, GONE, status=status).sites["paris"]
    assert (paris.failures, paris.last_error_kind, paris.last_error_at) == (
        {"no-answer": 2},
        "no-answer",
        40.0,
    )
    after(replace(GOOD, client="paris"), status=status)
    assert (paris.last_error, paris.last_error_kind, paris.last_reply) == (
        "gone [2J",
        "",
        50.0,
    )


def test_a_finished_round_adds_its_seconds_and_nobody_is_waited_for() -> None:
    second = replace(RESULT, round=2, seconds={"train": 3.0, "test": 1.0})
    status = after(RoundFinished(RESULT, 5, ""), ASKED, RoundFinished(second, 5, ""))
    assert (status.finished_rounds, status.sites["berlin"].asked_for) == (2, "")
    assert (status.seconds, status.last_seconds) == (
        {"train": 5.0, "test": 1.0},
        {"train": 3.0, "test": 1.0},
    )


def test_a_run_that_goes_on_goes_on_counting_and_another_run_does_not() -> None:
    before = after(ASKED, GOOD, GONE, RoundFinished(RESULT, 5, ""), ASKED)
    before.end("failed", "the disk is full", 60.0)
    other = RunStatus.start(replace(CONFIG, seed=1), before, 100.0)
    assert other.sites == {"berlin": SiteRecord(), "paris": SiteRecord()}
    status = RunStatus.start(CONFIG, before, 100.0)
    assert (status.outcome, status.error, status.ended, status.phase) == (
        "running",
        "",
        0.0,
        "start",
    )
    assert (status.finished_rounds, status.seconds, status.bytes_sent) == (
        1,
        {"train": 2.0},
        200,
    )
    assert status.sites["berlin"] == SiteRecord(
        "", 50.0, 20.0, 1, epsilon=1.5, delta=1e-5
    )
    assert status.sites["paris"].failures == {NO_ANSWER: 1}
    # the folder knows
    assert (
        after(RunStarted("FedAUX", "", (RESULT,) * 2, 5), status=status).finished_rounds
        == 2
    )


def test_when_a_run_counts_as_stuck_is_measured() -> None:
    """Nobody knows before a round is done; then three times the longest wait, within
    bounds.
    """
    status = after(ASKED, step=50.0)
    assert status.stuck_after == 3600.0
    status = after(RoundFinished(RESULT, 5, ""), status=status, step=200.0)
    assert status.stuck_after == 600.0
    assert after(Notice(""), status=status, step=2000.0).stuck_after == 3600.0
    assert after(RoundFinished(RESULT, 5, "")).stuck_after == 300.0
    assert RunStatus.start(CONFIG, status, 0.0).stuck_after == 3600.0


def test_what_is_stored_is_what_is_read(tmp_path: Path) -> None:
    status = after(ASKED, replace(GOOD, account=replace(SPENT, epsilon=math.inf)))
    status.end("failed", "the disk is full", 99.0)
    for more in ({}, {"of a newer version": 1}):
        (tmp_path / STATUS_FILE).write_text(
            json.dumps({**json.loads(status.to_json()), **more})
        )
        assert RunStatus.load(tmp_path) == status


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"sites": []}', '{"sites": {"a": 1}}', "\xff"]
)
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / STATUS_FILE).write_text(text, encoding="latin-1")
    assert RunStatus.load(tmp_path) is None
    assert RunStatus.load(tmp_path / "nowhere") is None


def load(folder: Path) -> RunStatus:
    found = RunStatus.load(folder)
    assert found is not None
    return found


def until(condition: Callable[[], bool]) -> bool:
    return any(condition() or threading.Event().wait(0.01) for _ in range(2000))


def test_the_file_follows_the_run_and_shows_that_its_writer_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITE_INTERVAL", 0.001)
    now = time.time()
    with status_file(tmp_path, CONFIG, ("1of2", "2of2")) as on_progress:
        assert (load(tmp_path).outcome, load(tmp_path).phase) == ("running", "start")
        assert list(load(tmp_path).sites) == ["1of2", "2of2"]
        on_progress(ASKED)
        assert until(lambda: load(tmp_path).phase == "train")
        os.utime(tmp_path / STATUS_FILE, (now - 3600, now - 3600))
        assert until(lambda: is_alive(tmp_path, now))
    assert (load(tmp_path).outcome, load(tmp_path).error) == ("finished", "")
    os.utime(tmp_path / STATUS_FILE, (now - 59, now - 59))
    assert is_alive(tmp_path, now)
    assert not is_alive(tmp_path, now + 2)
    assert not is_alive(tmp_path / "nowhere", now)


def test_many_events_are_few_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(
        module, "write_atomically", lambda path, data: written.append(data)
    )
    monkeypatch.setattr(module, "WRITE_INTERVAL", 60.0)
    with status_file(tmp_path, CONFIG) as on_progress:
        for number in range(1000):
            on_progress(OrdersSent("train", 1, (str(number),), 1))
    assert len(written) == 2
    assert b'"999"' in written[-1]  # the last one is never lost


@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        (RuntimeError("no site\nanswers"), "failed", "no site answers"),
        (KeyError(), "failed", "KeyError"),
        (KeyboardInterrupt(), "stopped", "it was told to stop"),
        (SystemExit(1), "stopped", "it was told to stop"),
    ],
    ids=repr,
)
def test_the_file_says_how_the_run_ended(
    tmp_path: Path, error: BaseException, outcome: str, text: str
) -> None:
    with pytest.raises(type(error)), status_file(tmp_path, CONFIG):
        raise error
    assert (load(tmp_path).outcome, load(tmp_path).error) == (outcome, text)


def test_a_disk_that_is_full_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(module, "write_atomically", full)
    with status_file(tmp_path, CONFIG) as on_progress:
        on_progress(Notice("still here"))
    assert not (tmp_path / STATUS_FILE).exists()
