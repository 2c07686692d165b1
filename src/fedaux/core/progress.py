"""Progress as one stream of typed events: `report(event)` sends one to whoever listens
to the work that is going on.

Panel, lines of a log and the status file listen to it. What works need not know them:

    with report_to(listener):
        ...
        for file in track(files, "reading images"): ...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from fedaux.core.accounts import Account
from fedaux.core.failures import Failure
from fedaux.core.results import RoundResult

Task = Literal["release", "sums", "sum", "train", "look"]
Phase = Literal["", "connect", "pretrain", "features", "distil"]


@dataclass(frozen=True, kw_only=True)
class ProgressEvent:
    """Base class of all progress events, the types below."""

    # of a sweep: which of its runs, or the extractor that several of them share
    run: str = ""


@dataclass(frozen=True)
class RunStarted(ProgressEvent):
    """A run starts, or continues after the rounds of its history."""

    method: str  # its label: FedAUX
    setting: str  # its data, clients, networks and seed in a line
    history: tuple[RoundResult, ...]
    rounds: int


@dataclass(frozen=True)
class WorkProgress(ProgressEvent):
    """Progress of a long task: images read, epochs of pre-training, sites connected,
    attacks of an audit.

    `phase` is the phase of the run. Low-level work, which may occur in any phase,
    leaves it empty.
    """

    task: str
    done: int
    total: int  # 0 if its steps are not counted
    note: str = ""
    phase: Phase = ""


@dataclass(frozen=True)
class SitesConnected(WorkProgress):
    """Sites are there that were not. `versions` has the packages of each that has said
    them.
    """

    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OrdersSent(ProgressEvent):
    """Clients are asked for something, or regions, by the server that merges them."""

    task: Task
    round: int | None  # of training
    clients: tuple[str, ...]
    bytes: int  # of arrays, to all of them


@dataclass(frozen=True)
class ReplyReceived(ProgressEvent):
    """A client has answered, or the server has stopped waiting for it."""

    task: Task
    round: int | None
    client: str
    bytes: int
    account: Account | None = None  # the privacy account that it reports
    failure: Failure | None = None
    done: int = 0  # replies so far, failures included
    total: int = 0  # clients asked; 0 for a reply that is refused after it was counted


@dataclass(frozen=True)
class SitesLooked(ProgressEvent):
    """The sites have counted their records under noise, each at this ε."""

    epsilon: float
    before: Mapping[str, float]  # the total of each site before, where it is known
    accounts: Mapping[str, Account]  # of the sites that answered, after it


@dataclass(frozen=True)
class RoundFinished(ProgressEvent):
    """A round has finished and is saved."""

    result: RoundResult  # its metrics
    rounds: int  # of the whole run
    # the privacy budget that clients report to have spent, in one line; "" for none
    privacy: str
    warning: str = ""  # why the model so far is not usable, and what to try first


@dataclass(frozen=True)
class SweepProgress(ProgressEvent):
    """How many runs of a sweep have ended, and the latest of them. `accuracy` is None
    if it failed.

    Tuning counts rounds instead, since its runs differ in length.
    """

    done: int
    total: int
    ended: str = ""  # "" at the start
    accuracy: float | None = None
    unit: str = "runs"


@dataclass(frozen=True)
class Notice(ProgressEvent):
    """Something that the user should know: a site has joined, a node is left out."""

    text: str


@dataclass(frozen=True)
class OwnersAwaited(Notice):
    """The run waits for the owners of these sites to approve its plan."""

    sites: tuple[str, ...]


OnProgress = Callable[[ProgressEvent], None]


def each_of(*listeners: OnProgress) -> OnProgress:
    """Return a listener that passes each event to all of `listeners`, in this order."""

    def on_progress(event: ProgressEvent) -> None:
        for listener in listeners:
            listener(event)

    return on_progress


def no_progress(event: ProgressEvent) -> None:
    """Ignore every event."""


Item = TypeVar("Item")
_EVERY = 0.2  # seconds between two reports of the same work
_listener: ContextVar[OnProgress] = ContextVar("listener", default=no_progress)


@contextmanager
def report_to(on_progress: OnProgress) -> Iterator[None]:
    """Send progress of the work inside to `on_progress`. `no_progress` keeps the
    listener that is already set.
    """
    if on_progress is no_progress:
        on_progress = _listener.get()
    token = _listener.set(on_progress)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def report_as(run: str) -> Iterator[None]:
    """Send progress of the work inside to the present listener, as that of a run of a
    sweep.
    """
    listener = _listener.get()
    with report_to(lambda event: listener(replace(event, run=run))):
        yield


def report(event: ProgressEvent) -> None:
    """Send an event to the listener of the work inside which this is called."""
    _listener.get()(event)


class ProgressTask:
    """A task of `total` steps, reported when it begins, a few times a second, and when
    it ends.
    """

    def __init__(self, task: str, total: int, done: int = 0) -> None:
        self.task = task
        self.total = total
        self.done = done
        self._report()

    def step(self, count: int = 1) -> None:
        self.done += count
        if self.done >= self.total or time.monotonic() - self._last >= _EVERY:
            self._report()

    def _report(self) -> None:
        self._last = time.monotonic()
        done = min(self.done, self.total)
        report(WorkProgress(self.task, done, self.total))


def track(items: Sequence[Item], task: str) -> Iterator[Item]:
    """Yield the items one by one, and report them as the steps of a task."""
    work = ProgressTask(task, len(items))
    for item in items:
        yield item
        work.step()
