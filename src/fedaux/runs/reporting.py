"""What a server's run reports: its requests to clients, its status, and a log for
operators and alarms.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.event_log import EventLog
from fedaux.core.failures import Failure
from fedaux.core.progress import (
    Notice,
    OnProgress,
    OrdersSent,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    Task,
    WorkProgress,
    each_of,
    report,
    report_to,
)
from fedaux.core.timing import payload_bytes
from fedaux.messages import (
    Answer,
    Consent,
    Federation,
    LookOrder,
    Order,
    PlanOrder,
    PrepareOrder,
    Reply,
    SecureTotal,
    Subtotal,
    SumOrder,
    SumReply,
    SumsOrder,
    TrainOrder,
)
from fedaux.report.progress import describe
from fedaux.runs.status import outcome_of, status_file

TASKS: dict[type[Order], Task] = {
    PrepareOrder: "release",
    SumsOrder: "sums",
    SumOrder: "sum",
    TrainOrder: "train",
    LookOrder: "look",
}
# by phase
LOGGED = {
    "connect": "sites-connected",
    "pretrain": "pretraining",
    "distil": "aggregation-started",
}


@dataclass(frozen=True)
class ReportingFederation:
    """`federation`, to the letter, with an event for all orders and one for every
    reply.
    """

    federation: Federation

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """All orders of one call are of one kind."""
        if not orders:
            return
        order = orders[0]
        if isinstance(order, PlanOrder):  # before the run: its answers are notices
            yield from self.federation.ask(orders)
            return
        task = TASKS[type(order)]
        round_ = getattr(order, "round", None)
        clients = tuple(order.client for order in orders)
        size = sum(map(payload_bytes, orders))
        report(OrdersSent(task, round_, clients, size))
        done = 0
        for reply in self.federation.ask(orders):
            if not isinstance(reply, Subtotal | SecureTotal):  # which are no client's
                done += 1
                report(received(reply, task, round_, done, len(clients)))
            yield reply
            del reply  # the next one is waited for without it


def received(
    reply: Answer | Failure, task: Task, round_: int | None, done: int, total: int
) -> ReplyReceived:
    """Return the event of a client's reply."""
    account = None
    if not isinstance(reply, Failure | SumReply | Consent):
        account = Account.from_json(reply.account)
    failure = reply if isinstance(reply, Failure) else None
    size = payload_bytes(reply)
    return ReplyReceived(
        task, round_, reply.client, size, account, failure, done, total
    )


@contextmanager
def reporting(
    folder: Path, config: Config, listener: OnProgress, sites: Sequence[str] = ()
) -> Iterator[None]:
    """Report the run inside to `listener`, to the status file of a server and to its
    log in $FEDAUX_LOG, which also hear how the run ended.
    """
    with (
        logged(EventLog.from_environment(config.run_id)) as log,
        status_file(folder, config, sites) as status,
        report_to(each_of(status, log, listener)),
    ):
        yield


@contextmanager
def logged(log: EventLog) -> Iterator[OnProgress]:
    """A listener that writes events as lines of a log, without steps in between. The
    run's end is a line as well.
    """
    lines = EventLines(log)
    try:
        yield lines.write
        log.write("run-finished", "the run is complete")
    except BaseException as error:
        outcome, reason = outcome_of(error)
        log.write(f"run-{outcome}", reason, logging.ERROR, round=lines.round)
        raise
    finally:
        log.close()


class EventLines:
    """Writes events as lines of a log, with the round in which they are."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.round = 1

    def write(self, event: ProgressEvent) -> None:
        match event:
            case RunStarted():
                self.round = len(event.history) + 1
                line = describe(event)
                self._log.write("run-started", line, rounds=event.rounds)
            case WorkProgress():
                self._write_phase(event)
            case OrdersSent():
                self._log.write(
                    "orders-sent",
                    describe(event),
                    round=self.round,
                    task=event.task,
                    clients=len(event.clients),
                    bytes=event.bytes,
                )
            case ReplyReceived():
                self._write_reply(event)
            case RoundFinished():
                self._write_round(event)
            case Notice():
                self._log.write("notice", event.text)

    def _write_phase(self, event: WorkProgress) -> None:
        if event.phase not in LOGGED:
            return
        counts: dict[str, Any] = {}
        if event.phase == "connect":
            counts = {"connected": event.done, "expected": event.total}
        round_ = self.round if event.phase == "distil" else None
        self._log.write(LOGGED[event.phase], describe(event), round=round_, **counts)

    def _write_reply(self, event: ReplyReceived) -> None:
        details: dict[str, Any] = {"task": event.task, "bytes": event.bytes}
        kind = "reply"
        level = logging.INFO
        if event.failure is not None:
            kind = "reply-failed"
            level = logging.WARNING
            details["kind"] = event.failure.kind
        line = describe(event)
        self._log.write(kind, line, level, event.client, self.round, **details)

    def _write_round(self, event: RoundFinished) -> None:
        line = describe(event)
        level = logging.INFO
        if event.warning:
            line += f"; {event.warning}"
            level = logging.WARNING
        number = event.result.round
        seconds = event.result.seconds
        self._log.write("round-finished", line, level, round=number, seconds=seconds)
        self.round = number + 1
