"""Progress as one stream of typed events: `on_progress(event)` is called as work proceeds.

Panel, lines of a log, JSON lines, trackers, callbacks and the status file all listen to it. Readers of files and
training loops lie far below the commands; they report to whoever listens in their context:

    for file in track(files, "reading images"): …
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, TypeVar

from fedaux.core.messages import Account, Failure
from fedaux.core.results import RoundResult

Task = Literal["release", "sums", "train"]
Phase = Literal["", "connect", "pretrain", "features", "distil"]


@dataclass(frozen=True, kw_only=True)
class ProgressEvent:
    """One of the types below."""

    run: str = ""  # of a sweep: which of its runs, or the extractor that several of them share


@dataclass(frozen=True)
class RunStarted(ProgressEvent):
    """A run starts, or continues after the rounds of its history."""

    method: str  # its label: FedAUX
    setting: str  # its data, clients, networks and seed in a line
    history: tuple[RoundResult, ...]
    rounds: int


@dataclass(frozen=True)
class WorkProgress(ProgressEvent):
    """Steps of work that takes a while: images read, epochs of pre-training, sites connected, attacks of an audit.

    `phase` is the part of a run that it is; work far below, which may occur in any of them, has none.
    """

    task: str
    done: int
    total: int  # 0 if its steps are not counted
    note: str = ""
    phase: Phase = ""


@dataclass(frozen=True)
class OrdersSent(ProgressEvent):
    """Clients are asked for something; or regions, by the server that merges them."""

    task: Task
    round: int | None  # of training
    clients: tuple[str, ...]
    bytes: int  # of arrays, to all of them


@dataclass(frozen=True)
class ReplyReceived(ProgressEvent):
    """A client has answered, or is given up."""

    task: Task
    round: int | None
    client: str
    bytes: int
    account: Account | None = None  # what it says that it has spent
    failure: Failure | None = None
    done: int = 0  # how many have answered, failures included,
    total: int = 0  # of those asked; 0 for a reply that is refused after it was counted


@dataclass(frozen=True)
class RoundFinished(ProgressEvent):
    """The round is saved."""

    result: RoundResult
    rounds: int
    privacy: str  # what the clients have reported to have spent, in a line; "" for nothing
    warning: str = ""  # why the model so far is no result, and what to try first


@dataclass(frozen=True)
class SweepProgress(ProgressEvent):
    """Runs of a sweep that have ended, and the last of them; without accuracy, it failed.

    Tuning counts rounds instead, as its runs are not equally long.
    """

    done: int
    total: int
    ended: str = ""  # "" at the start
    accuracy: float | None = None
    unit: str = "runs"


@dataclass(frozen=True)
class Notice(ProgressEvent):
    """Something that a person should know: a site has come, a node is left out."""

    text: str


OnProgress = Callable[[ProgressEvent], None]


def each_of(*listeners: OnProgress) -> OnProgress:
    """Tells every listener, in this order."""

    def on_progress(event: ProgressEvent) -> None:
        for listener in listeners:
            listener(event)

    return on_progress


def no_progress(event: ProgressEvent) -> None:
    """Ignores every event."""


Item = TypeVar("Item")
_EVERY = 0.2  # seconds between two reports of the same work
_listener: ContextVar[OnProgress] = ContextVar("listener", default=no_progress)


@contextmanager
def report_to(on_progress: OnProgress) -> Iterator[None]:
    """Who hears of the work inside; `no_progress` leaves that to whoever listens outside."""
    token = _listener.set(_listener.get() if on_progress is no_progress else on_progress)
    try:
        yield
    finally:
        _listener.reset(token)


class ProgressTask:
    """So many steps of one task, reported when it begins, a few times a second, and when it ends."""

    def __init__(self, task: str, total: int, done: int = 0) -> None:
        self.task, self.total, self.done = task, total, done
        self._report()

    def step(self, count: int = 1) -> None:
        self.done += count
        if self.done >= self.total or time.monotonic() - self._last >= _EVERY:
            self._report()

    def _report(self) -> None:
        self._last = time.monotonic()
        _listener.get()(WorkProgress(self.task, min(self.done, self.total), self.total))


def track(items: Sequence[Item], task: str) -> Iterator[Item]:
    """The items, one by one, as a task."""
    work = ProgressTask(task, len(items))
    for item in items:
        yield item
        work.step()
