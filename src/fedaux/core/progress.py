"""Progress as typed events: `on_progress(event)` is called as work proceeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fedaux.core.messages import Account, Failure
from fedaux.core.results import RoundResult

Task = Literal["release", "sums", "train"]


class ProgressEvent:
    """One of the types below."""


@dataclass(frozen=True)
class RunStarted(ProgressEvent):
    """A run starts, or continues after the rounds of its history."""

    method: str  # its label: FedAUX
    setting: str  # its data, clients, networks and seed in a line
    history: tuple[RoundResult, ...]
    rounds: int


@dataclass(frozen=True)
class PretrainingProgress(ProgressEvent):
    """An epoch is done; or all of them at once, where the weights come from the cache or were published."""

    prototype: str
    epoch: int
    epochs: int
    source: Literal["training", "cache", "published"] = "training"
    loss: float | None = None
    rank: float | None = None  # effective rank of the features
    views_per_second: float | None = None


@dataclass(frozen=True)
class WorkProgress(ProgressEvent):
    """Steps of work that takes a while: images read, batches trained. It comes from `core/work.py`."""

    task: str
    done: int
    total: int


@dataclass(frozen=True)
class FeaturesProgress(ProgressEvent):
    """Records that have passed a frozen extractor; features that are in the cache make no event."""

    prototype: str
    done: int
    total: int


@dataclass(frozen=True)
class ReleasesProgress(ProgressEvent):
    """Clients asked for their private release; bytes are the most that any of them is sent."""

    round: int
    done: int  # answered, failures included
    total: int
    failed: int
    extractor_bytes: int  # 0 where all of them have it
    public_bytes: int


@dataclass(frozen=True)
class SumsProgress(ProgressEvent):
    """Clients asked for sums of their features; bytes are the most that any of them is sent."""

    round: int
    done: int  # answered, failures included
    total: int
    failed: int
    extractor_bytes: int  # 0 where all of them have it


@dataclass(frozen=True)
class TrainingProgress(ProgressEvent):
    """Clients asked for an update."""

    round: int
    done: int  # answered, failures included
    total: int
    failed: int


@dataclass(frozen=True)
class SitesConnected(ProgressEvent):
    """So many of the sites that a run waits for are there."""

    done: int
    total: int


@dataclass(frozen=True)
class OrdersSent(ProgressEvent):
    """Clients are asked for something: `runs/reporting.py` says so where somebody watches each of them."""

    task: Task
    clients: tuple[str, ...]
    round: int | None  # of training
    bytes: int  # of arrays, to all of them


@dataclass(frozen=True)
class ReplyReceived(ProgressEvent):
    """A client has answered, or is given up."""

    client: str
    task: Task
    bytes: int
    account: Account | None = None  # what it says that it has spent
    failure: Failure | None = None


@dataclass(frozen=True)
class AggregationStarted(ProgressEvent):
    """Updates are in; the server averages, distils and tests."""

    round: int


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
    run: str = ""  # "" at the start
    accuracy: float | None = None
    unit: str = "runs"


@dataclass(frozen=True)
class SweepRunProgress(ProgressEvent):
    """What happens in one run of a sweep, or in the pre-training of an extractor that several share."""

    run: str
    event: ProgressEvent


@dataclass(frozen=True)
class AuditProgress(ProgressEvent):
    """An attack starts, the n-th of all."""

    attack: str
    number: int
    total: int


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
