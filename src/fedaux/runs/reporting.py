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
)
from fedaux.core.timing import payload_bytes
from fedaux.messages import (
    Consent,
    Federation,
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
    on_progress: OnProgress

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """All orders of one call are of one kind."""
        if not orders:
            return
        if isinstance(orders[0], PlanOrder):  # before the run: its answers are notices
            yield from self.federation.ask(orders)
            return
        task, round_, done = (
            TASKS[type(orders[0])],
            getattr(orders[0], "round", None),
            0,
        )
        clients = tuple(order.client for order in orders)
        self.on_progress(
            OrdersSent(task, round_, clients, sum(map(payload_bytes, orders)))
        )
        for reply in self.federation.ask(orders):
            if not isinstance(reply, Subtotal | SecureTotal):  # which are no client's
                done += 1
                size, failure = (
                    payload_bytes(reply),
                    reply if isinstance(reply, Failure) else None,
                )
                account = (
                    None
                    if isinstance(reply, Failure | SumReply | Consent)
                    else Account.from_json(reply.account)
                )
                self.on_progress(
                    ReplyReceived(
                        task,
                        round_,
                        reply.client,
                        size,
                        account,
                        failure,
                        done,
                        len(clients),
                    )
                )
            yield reply
            del reply  # the next one is waited for without it


@contextmanager
def reporting(
    folder: Path, config: Config, sites: Sequence[str] = ()
) -> Iterator[OnProgress]:
    """The status file of a server and its log in $FEDAUX_LOG: a listener for both,
    which hear how the run ended.
    """
    with (
        logged(EventLog.from_environment(config.run_id)) as log,
        status_file(folder, config, sites) as status,
    ):
        yield each_of(status, log)


@contextmanager
def logged(log: EventLog) -> Iterator[OnProgress]:
    """A listener that writes events as lines of a log, without steps in between; the
    run's end is a line as well.
    """
    current = 1

    def on_progress(event: ProgressEvent) -> None:
        nonlocal current
        facts: dict[str, Any] = {}
        match event:
            case RunStarted():
                current = len(event.history) + 1
                log.write("run-started", describe(event), rounds=event.rounds)
            case WorkProgress(phase=phase) if phase in LOGGED:
                facts = (
                    {"connected": event.done, "expected": event.total}
                    if phase == "connect"
                    else {}
                )
                log.write(
                    LOGGED[phase],
                    describe(event),
                    round=current if phase == "distil" else None,
                    **facts,
                )
            case OrdersSent():
                facts = {
                    "task": event.task,
                    "clients": len(event.clients),
                    "bytes": event.bytes,
                }
                log.write("orders-sent", describe(event), round=current, **facts)
            case ReplyReceived():
                facts = {"task": event.task, "bytes": event.bytes}
                if event.failure is None:
                    log.write(
                        "reply",
                        describe(event),
                        logging.INFO,
                        event.client,
                        current,
                        **facts,
                    )
                else:
                    facts["kind"] = event.failure.kind
                    log.write(
                        "reply-failed",
                        describe(event),
                        logging.WARNING,
                        event.client,
                        current,
                        **facts,
                    )
            case RoundFinished():
                level, text = (
                    (logging.WARNING, f"; {event.warning}")
                    if event.warning
                    else (logging.INFO, "")
                )
                seconds, current = event.result.seconds, event.result.round
                log.write(
                    "round-finished",
                    describe(event) + text,
                    level,
                    round=current,
                    seconds=seconds,
                )
                current += 1
            case Notice():
                log.write("notice", event.text)

    try:
        yield on_progress
        log.write("run-finished", "the run is complete")
    except BaseException as error:
        outcome, text = outcome_of(error)
        log.write(f"run-{outcome}", text, logging.ERROR, round=current)
        raise
    finally:
        log.close()
