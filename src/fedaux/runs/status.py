"""What a server's run is doing now, in one small file of its folder, for monitoring
from outside.

All times are seconds since 1970. 0 is never.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.event_log import printable
from fedaux.core.io import write_atomically
from fedaux.core.progress import (
    OnProgress,
    OrdersSent,
    OwnersAwaited,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesConnected,
    SitesLooked,
    WorkProgress,
)
from fedaux.core.results import RoundResult

STATUS_FILE = "status.json"
APPROVAL = "approval"  # the phase in which a run waits for owners, who may take days
SHORTEST = 300.0  # seconds without a sign of progress, after which a run is stuck; or,
LONGEST_WAITS = 3.0  # if that is more, this many times the longest wait so far
WRITE_INTERVAL = 1.0  # seconds between two writes of the file
# seconds without a sign of life, after which a writer is taken for dead
STALE = 60.0
Outcome = Literal["running", "finished", "failed", "stopped"]


def outcome_of(error: BaseException | None) -> tuple[Outcome, str]:
    """How a run has ended that this error left, or none, and the error in words."""
    if error is None:
        return "finished", ""
    # of SystemExit and KeyboardInterrupt no text is for people
    if not isinstance(error, Exception):
        return "stopped", "it was told to stop"
    return "failed", str(error) or type(error).__name__


@dataclass
class SiteRecord:
    """What the server knows of one site."""

    asked_for: str = ""  # what it has not answered yet: release, sums or train
    asked_at: float = 0.0
    last_reply: float = 0.0  # that could be used
    replies: int = 0
    failures: dict[str, int] = field(default_factory=dict)  # by kind
    last_error: str = ""
    last_error_at: float = 0.0
    last_error_kind: str = ""  # of the last answer: "" if it could be used
    epsilon: float | None = None  # spent, as it says itself
    delta: float | None = None
    # of the run's look, and the total before it; None if there was no look
    epsilon_look: float | None = None
    epsilon_before_look: float | None = None
    versions: str = ""  # of its packages, as it says itself


@dataclass
class RunStatus:
    """Changed by every event. `budget` is what the server's own settings allow a site.
    A site's own alone count.
    """

    run: str = ""
    method: str = ""
    rounds: int = 0
    budget: float = 0.0
    timeout: float = 0.0  # federation.timeout
    pid: int = 0
    outcome: Outcome = "running"
    error: str = ""  # that ended it
    started: float = 0.0
    ended: float = 0.0
    rounds_before: int = 0  # when this process started
    finished_rounds: int = 0
    phase: str = "start"
    phase_since: float = 0.0
    last_progress: float = 0.0
    longest_wait: float = 0.0  # between two signs of progress
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, of all rounds
    last_seconds: dict[str, float] = field(default_factory=dict)  # of the last one
    bytes_sent: int = 0
    bytes_received: int = 0
    sites: dict[str, SiteRecord] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        config: Config,
        before: RunStatus | None,
        now: float,
        sites: Sequence[str] = (),
    ) -> RunStatus:
        """Return the status of a run that begins. If `before` is of the same run, its
        counts continue.
        """
        if before is None or before.run != config.run_id:
            before = cls()
        names = sites or config.federation.sites or before.sites
        records = {
            name: replace(before.sites.get(name, SiteRecord()), asked_for="")
            for name in names
        }
        spends = config.releases or config.privacy.private_training
        return cls(
            run=config.run_id,
            method=find_method(config.method).label,
            rounds=config.rounds,
            budget=config.privacy.epsilon_budget if spends else 0.0,
            timeout=config.federation.timeout,
            pid=os.getpid(),
            started=now,
            rounds_before=before.finished_rounds,
            finished_rounds=before.finished_rounds,
            phase_since=now,
            last_progress=now,
            seconds=before.seconds,
            last_seconds=before.last_seconds,
            bytes_sent=before.bytes_sent,
            bytes_received=before.bytes_received,
            sites=records,
        )

    @property
    def stuck_after(self) -> float:
        """Seconds without a sign of progress after which the run counts as stuck.

        Before the first round has finished, the duration of its parts is unknown.
        `federation.timeout` ends it anyway.
        """
        if self.finished_rounds == self.rounds_before:
            return self.timeout
        return min(self.timeout, max(SHORTEST, LONGEST_WAITS * self.longest_wait))

    def update(self, event: ProgressEvent, now: float) -> None:
        """Any event is a sign of progress. Some begin another phase of the run."""
        self.longest_wait = max(self.longest_wait, now - self.last_progress)
        self.last_progress = now
        if isinstance(event, SitesConnected):
            for client, versions in event.versions.items():
                self._site(client).versions = versions
        match event:
            case RunStarted():
                self.rounds_before = self.finished_rounds = len(event.history)
                self._enter("prepare", now)
            case WorkProgress(phase=phase) if phase:
                self._enter(phase, now)
            case OwnersAwaited():
                self._await_owners(event.sites, now)
            case OrdersSent():
                self._enter("train" if event.task == "train" else "score", now)
                self.bytes_sent += event.bytes
                for client in event.clients:
                    site = self._site(client)
                    site.asked_for = event.task
                    site.asked_at = now
            case ReplyReceived():
                self._receive(event, now)
            case SitesLooked():
                self._add_look(event)
            case RoundFinished():
                self._finish(event.result)
                self._enter("between rounds", now)

    def _await_owners(self, sites: Sequence[str], now: float) -> None:
        self._enter(APPROVAL, now)
        self._forget_owners()
        for name in sites:
            site = self._site(name)
            site.asked_for = APPROVAL
            site.asked_at = self.phase_since

    def _forget_owners(self) -> None:
        for site in self.sites.values():
            if site.asked_for == APPROVAL:
                site.asked_for = ""

    def _enter(self, phase: str, now: float) -> None:
        if self.phase == APPROVAL != phase:
            self._forget_owners()
        if phase != self.phase:
            self.phase = phase
            self.phase_since = now

    def _finish(self, result: RoundResult) -> None:
        self.finished_rounds = result.round
        self.last_seconds = dict(result.seconds)
        for phase, seconds in result.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
        for site in self.sites.values():
            site.asked_for = ""  # spare ones are not waited for

    def _receive(self, event: ReplyReceived, now: float) -> None:
        self.bytes_received += event.bytes
        site = self._site(event.client)
        site.asked_for = ""
        failure = event.failure
        if failure is not None:
            site.failures[failure.kind] = site.failures.get(failure.kind, 0) + 1
            site.last_error = printable(failure.reason)
            site.last_error_at = now
            site.last_error_kind = failure.kind
            return
        site.last_reply = now
        site.last_error_kind = ""
        site.replies += 1
        if event.account is not None:
            site.epsilon = event.account.epsilon
            site.delta = event.account.delta

    def _add_look(self, event: SitesLooked) -> None:
        for client, account in event.accounts.items():
            site = self._site(client)
            site.epsilon = account.epsilon
            site.delta = account.delta
            site.epsilon_look = event.epsilon
            site.epsilon_before_look = event.before.get(client, 0.0)

    def _site(self, client: str) -> SiteRecord:
        return self.sites.setdefault(client, SiteRecord())

    def end(self, outcome: Outcome, error: str, now: float) -> None:
        self.outcome = outcome
        self.error = printable(error)
        self.ended = now

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, folder: Path) -> RunStatus | None:
        """Read the status from a run's folder, or None if there is none, or it cannot be
        read.
        """
        try:
            table = json.loads((folder / STATUS_FILE).read_bytes())
            sites = {
                name: SiteRecord(**_known(SiteRecord, site))
                for name, site in table["sites"].items()
            }
            return cls(**{**_known(cls, table), "sites": sites})
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return None


def _known(kind: type[RunStatus | SiteRecord], table: dict[str, Any]) -> dict[str, Any]:
    """Keep only the fields that a type has: a newer version may have written more."""
    return {item.name: table[item.name] for item in fields(kind) if item.name in table}


def is_alive(folder: Path, now: float) -> bool:
    """Whether the file's writer has lately shown a sign of life."""
    try:
        return now - (folder / STATUS_FILE).stat().st_mtime < STALE
    except OSError:
        return False


@contextmanager
def status_file(
    folder: Path,
    config: Config,
    sites: Sequence[str] = (),
    clock: Callable[[], float] = time.time,
) -> Iterator[OnProgress]:
    """Keeps the file up to date with the events of a run; how the block inside ends is
    how the run has ended.

    A thread of its own writes: a disk that is slow holds nothing up, and events may
    come by the hundred. A full disk ends the run where it matters, not here.

    Args:
        folder: Of the run.
        config: Of the run.
        sites: Whom it is about: clients of one region, or regions. Without any, all
            clients.
        clock: Tells the time.

    Yields:
        The listener.
    """
    status = RunStatus.start(config, RunStatus.load(folder), clock(), sites)
    lock = threading.Lock()
    changed = threading.Event()
    over = threading.Event()

    def on_progress(event: ProgressEvent) -> None:
        with lock:
            status.update(event, clock())
        changed.set()

    def write() -> None:
        with lock:
            changed.clear()
            content = status.to_json()
        with suppress(OSError):
            write_atomically(folder / STATUS_FILE, content.encode())

    def write_on() -> None:
        while not over.wait(WRITE_INTERVAL):
            if changed.is_set():
                write()
            else:
                with suppress(OSError):
                    os.utime(folder / STATUS_FILE)

    write()
    thread = threading.Thread(target=write_on, daemon=True)
    thread.start()
    error: BaseException | None = None
    try:
        yield on_progress
    except BaseException as left:
        error = left
        raise
    finally:
        over.set()
        thread.join()
        status.end(*outcome_of(error), clock())
        write()
