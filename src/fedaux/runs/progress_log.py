"""A server's events as lines of its log: what an operator or an alarm would ask for, without steps in between."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any

from fedaux.core.event_log import EventLog
from fedaux.core.progress import (
    AggregationStarted,
    Notice,
    OrdersSent,
    PretrainingProgress,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesConnected,
)
from fedaux.report.progress import describe
from fedaux.runs.run_status import outcome_of


class ProgressLog:
    """`with ProgressLog(EventLog.from_environment(run)) as log`; the end of the run is a line as well."""

    def __init__(self, log: EventLog) -> None:
        self._log, self._round = log, 1

    def __enter__(self) -> ProgressLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outcome, text = outcome_of(error)
        if error is None:
            self._log.write("run-finished", "the run is complete")
        else:
            self._log.write(f"run-{outcome}", text, logging.ERROR, round=self._round)
        self._log.close()

    def on_progress(self, event: ProgressEvent) -> None:
        match event:
            case RunStarted():
                self._round = len(event.history) + 1
                self._log.write("run-started", describe(event), rounds=event.rounds)
            case SitesConnected():
                self._log.write("sites-connected", describe(event), connected=event.done, expected=event.total)
            case PretrainingProgress():
                self._log.write("pretraining", describe(event))
            case OrdersSent():
                facts: dict[str, Any] = {"task": event.task, "clients": len(event.clients), "bytes": event.bytes}
                self._log.write("orders-sent", describe(event), round=self._round, **facts)
            case ReplyReceived():
                self._reply(event)
            case AggregationStarted():
                self._log.write("aggregation-started", describe(event), round=event.round)
            case RoundFinished():
                self._finish(event)
            case Notice():
                self._log.write("notice", event.text)

    def _reply(self, event: ReplyReceived) -> None:
        failure = event.failure
        name, level = ("reply-failed", logging.WARNING) if failure else ("reply", logging.INFO)
        facts: dict[str, Any] = {
            "task": event.task,
            "bytes": event.bytes,
            **({"kind": failure.kind} if failure else {}),
        }
        self._log.write(name, describe(event), level, event.client, self._round, **facts)

    def _finish(self, event: RoundFinished) -> None:
        level, seconds = logging.WARNING if event.warning else logging.INFO, event.result.seconds
        text = describe(event) + (f"; {event.warning}" if event.warning else "")
        self._log.write("round-finished", text, level, round=event.result.round, seconds=seconds)
        self._round = event.result.round + 1
