"""Who was asked for what and what came back; and a run's events as lines of a log."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedaux.core.accounts import Account
from fedaux.core.event_log import EventLog
from fedaux.core.failures import NO_ANSWER, Failure
from fedaux.core.progress import (
    Notice,
    OrdersSent,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    WorkProgress,
    report_to,
)
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.core.timing import payload_bytes
from fedaux.messages import Order, Reply, Subtotal
from fedaux.runs.reporting import ReportingFederation, logged
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from fedaux.server.server import Server
from helpers.scripted import Scripted, account, honest, make_server

RESULT = RoundResult(
    3, {"mlp": 0.5}, {"a": ClientMetrics(9, 0.1, 1.0)}, seconds={"train": 2.0}
)


def prepared() -> tuple[Server, RunState]:
    server = make_server()
    state = initial_state(server)
    server.restore(state)
    return server, state


def test_every_order_and_every_reply_is_reported_when_it_arrives() -> None:
    (server, state), events = prepared(), list[ProgressEvent]()
    lost, said = Failure("b", "gone", NO_ANSWER), Account.from_json(account())
    orders = [server.orders.train(state, name) for name in "abc"]
    federation = ReportingFederation(Scripted({"b": lambda order: lost}))
    with report_to(events.append):
        replies = federation.ask(orders)
        next(replies)
        assert len(events) == 2
        assert next(replies) == lost
        list(replies)
    assert events == [
        OrdersSent("train", 1, ("a", "b", "c"), sum(map(payload_bytes, orders))),
        ReplyReceived(
            "train", 1, "a", payload_bytes(honest(orders[0])), said, done=1, total=3
        ),
        ReplyReceived("train", 1, "b", 0, failure=lost, done=2, total=3),
        ReplyReceived(
            "train", 1, "c", payload_bytes(honest(orders[2])), said, done=3, total=3
        ),
    ]


class Region:
    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        yield Subtotal({}, {}, {})


def test_sums_of_a_region_are_no_clients_reply_and_no_orders_are_no_event() -> None:
    (server, state), events = prepared(), list[ProgressEvent]()
    federation = ReportingFederation(Region())
    with report_to(events.append):
        assert list(federation.ask([])) == []
        assert len(list(federation.ask([server.orders.prepare(state, "a")]))) == 1
    assert [(type(event), getattr(event, "task", "")) for event in events] == [
        (OrdersSent, "release")
    ]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_log_from_the_beginning_of_a_run_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with logged(EventLog(path, "f00d")) as on_progress:
        for event in (
            WorkProgress("sites connected", 2, 2, phase="connect"),
            RunStarted("FedAUX", "digits", (RESULT,) * 2, 9),
            WorkProgress("pre-training cnn", 1, 2, phase="pretrain"),
            WorkProgress("files", 1, 2),
            WorkProgress("features of cnn", 1, 2, phase="features"),
            OrdersSent("train", 3, ("a", "b"), 100),
            ReplyReceived("train", 3, "a", 50, done=1, total=2),
            ReplyReceived(
                "train",
                3,
                "b",
                0,
                failure=Failure("b", "gone", NO_ANSWER),
                done=2,
                total=2,
            ),
            WorkProgress("round 3", 0, 0, phase="distil"),
            RoundFinished(RESULT, 9, "", "it has collapsed"),
            OrdersSent("release", None, ("a",), 1),
            Notice("node 7 is excluded"),
        ):
            on_progress(event)
    rows = lines(path)
    assert {row["run"] for row in rows} == {"f00d"}
    assert [
        (row["event"], row["level"], row["round"], row["site"]) for row in rows
    ] == [
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
    assert (rows[0]["connected"], rows[0]["expected"], rows[1]["rounds"]) == (2, 2, 9)
    assert (rows[3]["task"], rows[3]["clients"], rows[3]["bytes"]) == ("train", 2, 100)
    assert (rows[5]["kind"], rows[5]["message"]) == (
        "no-answer",
        "round 3: 2/2, b failed: gone",
    )
    assert (rows[7]["seconds"], "it has collapsed" in rows[7]["message"]) == (
        {"train": 2.0},
        True,
    )


@pytest.mark.parametrize(
    ("error", "event"),
    [(RuntimeError("no quorum"), "run-failed"), (KeyboardInterrupt(), "run-stopped")],
    ids=repr,
)
def test_a_log_says_how_the_run_ended(
    tmp_path: Path, error: BaseException, event: str
) -> None:
    def lose() -> None:
        with logged(EventLog(tmp_path / "e")) as on_progress:
            on_progress(RoundFinished(replace(RESULT, round=1), 9, ""))
            raise error

    with pytest.raises(type(error)):
        lose()
    last = lines(tmp_path / "e")[-1]
    assert (last["event"], last["level"], last["round"]) == (event, "error", 2)
    assert last["message"] == (str(error) or "it was told to stop")
