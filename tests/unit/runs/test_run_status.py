"""What a run is doing, from its events alone."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig, FederationConfig, PrivacyConfig
from fedaux.core.messages import NO_ANSWER, Account, Failure
from fedaux.core.progress import (
    AggregationStarted,
    FeaturesProgress,
    Notice,
    OrdersSent,
    PretrainingProgress,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesConnected,
    WorkProgress,
)
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.runs.run_status import FILE, RunStatus, SiteRecord

CONFIG = Config(
    rounds=5,
    data=DataConfig(partition="own"),
    privacy=PrivacyConfig(epsilon=1.0, epsilon_total=4.0),
    federation=FederationConfig(sites=("berlin", "paris"), timeout=3600.0),
)
METRICS = ClientMetrics(9, 0.1, 1.0)
RESULT = RoundResult(1, {"mlp": 0.5}, {"berlin": METRICS}, bytes_sent=7, bytes_received=5, seconds={"train": 2.0})
SPENT = Account(1.5, 1e-5, "replace-one", "record", 2)


def after(*events: ProgressEvent, status: RunStatus | None = None, step: float = 10.0) -> RunStatus:
    """The events at 10, 20, 30 …, or after what was."""
    status = status or RunStatus.start(CONFIG, None, 0.0)
    for event in events:
        status.update(event, status.last_progress + step)
    return status


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        (SitesConnected(1, 2), "connect"),
        (RunStarted("FedAUX", "", (), 5), "prepare"),
        (PretrainingProgress("cnn", 1, 2), "pretrain"),
        (FeaturesProgress("cnn", 1, 2), "features"),
        (OrdersSent("release", ("berlin",), None, 1), "score"),
        (OrdersSent("sums", ("berlin",), None, 1), "score"),
        (OrdersSent("train", ("berlin",), 1, 1), "train"),
        (AggregationStarted(1), "distil"),
        (RoundFinished(RESULT, 5, ""), "between rounds"),
        (Notice("hello"), "start"),
        (WorkProgress("files", 1, 2), "start"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_event_says_which_phase_it_is_and_is_a_sign_of_life(event: ProgressEvent, phase: str) -> None:
    since = 0.0 if phase == "start" else 10.0
    status = after(event)
    assert (status.phase, status.phase_since) == (phase, since)
    status = after(event, status=status)
    assert (status.phase_since, status.last_progress) == (since, 20.0)


def test_a_site_is_asked_answers_and_says_what_it_has_spent() -> None:
    status = after(OrdersSent("train", ("berlin", "paris"), 1, 100))
    assert [site.asked_for for site in status.sites.values()] == ["train", "train"]
    status = after(ReplyReceived("berlin", "train", 60, SPENT), status=status)
    assert status.sites["berlin"] == SiteRecord("", 10.0, 20.0, 1, epsilon=1.5, delta=1e-5)
    assert status.sites["paris"] == SiteRecord("train", 10.0)
    assert (status.bytes_sent, status.bytes_received, status.budget) == (100, 60, 4.0)


def test_a_failure_is_counted_by_kind_and_its_text_stays_after_a_good_reply() -> None:
    gone = ReplyReceived("paris", "train", 0, failure=Failure("paris", "gone\x1b[2J", NO_ANSWER))
    status = after(gone, gone)
    assert status.sites["paris"] == SiteRecord(
        failures={"no-answer": 2}, last_error="gone [2J", last_error_at=20.0, last_error_kind="no-answer"
    )
    mended = after(ReplyReceived("paris", "train", 1, SPENT), status=status).sites["paris"]
    assert (mended.last_error, mended.last_error_kind, mended.last_reply) == ("gone [2J", "", 30.0)


def test_a_failure_of_a_round_is_counted_once_and_so_is_one_that_is_found_in_the_end() -> None:
    no_score, norm = Failure("paris", "no score: gone", NO_ANSWER), Failure("paris", "its parameters move by 10")
    status = after(
        OrdersSent("release", ("paris",), None, 0),
        ReplyReceived("paris", "release", 0, failure=Failure("paris", "gone", NO_ANSWER)),
        OrdersSent("train", ("paris", "berlin"), 1, 0),
        ReplyReceived("paris", "train", 1, SPENT),
        RoundFinished(replace(RESULT, failures=(no_score, norm)), 5, ""),
    )
    assert status.sites["paris"].failures == {"no-answer": 1, "invalid": 1}
    assert status.sites["paris"].last_error == "its parameters move by 10"
    assert status.sites["berlin"].asked_for == ""  # a spare one, not waited for
    status = after(RoundFinished(replace(RESULT, failures=(norm,)), 5, ""), status=status)
    assert status.sites["paris"].failures == {"no-answer": 1, "invalid": 2}


def test_rounds_add_up_whether_they_were_seen_or_are_restored() -> None:
    late = Failure("paris", "late", NO_ANSWER)
    second = replace(RESULT, round=2, failures=(late,), seconds={"train": 3.0, "test": 1.0})
    status = RunStatus.start(CONFIG, None, 0.0)
    status.restore((RESULT, second), {"berlin": SPENT})
    assert (status.finished_rounds, status.bytes_sent, status.bytes_received) == (2, 14, 10)
    assert (status.seconds, status.last_seconds) == ({"train": 5.0, "test": 1.0}, {"train": 3.0, "test": 1.0})
    assert status.sites["berlin"] == SiteRecord(replies=2, epsilon=1.5, delta=1e-5)
    assert status.sites["paris"].failures == {"no-answer": 1}
    seen = after(RoundFinished(RESULT, 5, ""), RoundFinished(second, 5, ""))
    assert (seen.seconds, seen.last_seconds, seen.finished_rounds) == (status.seconds, status.last_seconds, 2)


def test_a_run_that_goes_on_remembers_times_and_another_run_does_not() -> None:
    before = after(
        OrdersSent("train", ("berlin",), 1, 0),
        ReplyReceived("berlin", "train", 1, SPENT),
        ReplyReceived("paris", "train", 0, failure=Failure("paris", "gone")),
        OrdersSent("train", ("berlin",), 2, 0),
    )
    other = RunStatus.start(replace(CONFIG, seed=1), before, 100.0)
    assert other.sites == {"berlin": SiteRecord(), "paris": SiteRecord()}
    status = RunStatus.start(CONFIG, before, 100.0)
    status.restore((RESULT,), {})
    assert status.sites["berlin"] == SiteRecord("", 40.0, 20.0, 1, epsilon=1.5, delta=1e-5)
    assert (status.sites["paris"].last_error, status.sites["paris"].failures) == ("gone", {})


def test_when_a_run_counts_as_stuck_is_measured() -> None:
    """Nobody knows before a round is done; then three times the longest wait, within bounds."""
    status = after(OrdersSent("train", ("berlin",), 1, 0), step=50.0)
    assert status.stuck_after == 3600.0
    status = after(RoundFinished(RESULT, 5, ""), status=status, step=200.0)
    assert status.stuck_after == 600.0
    assert after(Notice(""), status=status, step=2000.0).stuck_after == 3600.0
    assert after(RoundFinished(RESULT, 5, "")).stuck_after == 300.0
    resumed = RunStatus.start(CONFIG, None, 0.0)
    resumed.restore((RESULT,), {})
    assert resumed.stuck_after == 3600.0


def test_what_is_stored_is_what_is_read(tmp_path: Path) -> None:
    seeded = replace(SPENT, epsilon=math.inf)
    status = after(OrdersSent("train", ("berlin",), 1, 0), ReplyReceived("berlin", "train", 1, seeded))
    status.end("failed", "the disk is full", 99.0)
    (tmp_path / FILE).write_text(status.to_json())
    assert RunStatus.load(tmp_path) == status
    (tmp_path / FILE).write_text(json.dumps({**json.loads(status.to_json()), "of a newer version": 1}))
    assert RunStatus.load(tmp_path) == status


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sites": []}', '{"sites": {"a": 1}}', "\xff"])
def test_a_file_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    assert RunStatus.load(tmp_path) is None
    assert RunStatus.load(tmp_path / "nowhere") is None
