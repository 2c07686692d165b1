"""A run's events as lines: which of them, with which round and site, and how it ended."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedaux.core.event_log import EventLog
from fedaux.core.messages import NO_ANSWER, Failure
from fedaux.core.progress import (
    AggregationStarted,
    Notice,
    OrdersSent,
    PretrainingProgress,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesConnected,
    TrainingProgress,
    WorkProgress,
)
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.runs.progress_log import ProgressLog

RESULT = RoundResult(3, {"mlp": 0.5}, {"a": ClientMetrics(9, 0.1, 1.0)}, seconds={"train": 2.0})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_run_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with ProgressLog(EventLog(path, "f00d")) as log:
        for event in (
            SitesConnected(2, 2),
            RunStarted("FedAUX", "digits", (RESULT,) * 2, 9),
            PretrainingProgress("cnn", 1, 2),
            WorkProgress("files", 1, 2),
            OrdersSent("train", ("a", "b"), 3, 100),
            ReplyReceived("a", "train", 50),
            TrainingProgress(3, 1, 2, 0),
            ReplyReceived("b", "train", 0, failure=Failure("b", "gone", NO_ANSWER)),
            AggregationStarted(3),
            RoundFinished(RESULT, 9, "", "it has collapsed"),
            OrdersSent("release", ("a",), None, 1),
            Notice("node 7 is excluded"),
        ):
            log.on_progress(event)
    rows = lines(path)
    assert {row["run"] for row in rows} == {"f00d"}
    assert [(row["event"], row["level"], row["round"], row["site"]) for row in rows] == [
        ("sites-connected", "info", None, ""),
        ("run-started", "info", None, ""),
        ("pretraining", "info", None, ""),
        ("orders-sent", "info", 3, ""),
        ("reply", "info", 3, "a"),
        ("reply-failed", "warning", 3, "b"),
        ("aggregation-started", "info", 3, ""),
        ("round-finished", "warning", 3, ""),
        ("orders-sent", "info", 4, ""),
        ("notice", "info", None, ""),
        ("run-finished", "info", None, ""),
    ]
    assert (rows[5]["kind"], rows[5]["message"]) == ("no-answer", "b, train failed, gone")
    assert (rows[7]["seconds"], "it has collapsed" in rows[7]["message"]) == ({"train": 2.0}, True)


@pytest.mark.parametrize(
    ("error", "event"), [(RuntimeError("no quorum"), "run-failed"), (KeyboardInterrupt(), "run-stopped")], ids=repr
)
def test_how_it_ended(tmp_path: Path, error: BaseException, event: str) -> None:
    log = ProgressLog(EventLog(tmp_path / "e"))
    log.on_progress(RoundFinished(replace(RESULT, round=1), 9, ""))
    with pytest.raises(type(error)), log:
        raise error
    last = lines(tmp_path / "e")[-1]
    assert (last["event"], last["level"], last["round"]) == (event, "error", 2)
    assert last["message"] == (str(error) or "it was told to stop")
