"""What a server's run is doing now, in one small file of its folder: for whoever watches from outside.

Figures of finished rounds are those of the history. All times are seconds since 1970.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.event_log import printable
from fedaux.core.messages import Account, Failure
from fedaux.core.progress import (
    AggregationStarted,
    FeaturesProgress,
    OrdersSent,
    PretrainingProgress,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesConnected,
)
from fedaux.core.results import RoundResult

FILE = "status.json"
SHORTEST = 300.0  # seconds without a sign of progress, after which a run is stuck; or,
PATIENCE = 3.0  # if that is more, so many times the longest wait so far
Outcome = Literal["running", "finished", "failed", "stopped"]


def outcome_of(error: BaseException | None) -> tuple[Outcome, str]:
    """How a run has ended that this error left, or none; and the error in words."""
    if error is None:
        return "finished", ""
    if not isinstance(error, Exception):  # of SystemExit and KeyboardInterrupt no text is for people
        return "stopped", "it was told to stop"
    return "failed", str(error) or type(error).__name__


@dataclass
class SiteRecord:
    """What the server has had to do with one site."""

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


@dataclass
class RunStatus:
    """Changed by every event. `budget` is what the server's own settings allow a site; a site's own alone count."""

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
    failed: dict[str, list[str]] = field(default_factory=dict)  # kinds by client, in this round

    @classmethod
    def start(
        cls, config: Config, before: RunStatus | None, now: float, sites: Iterable[str] | None = None
    ) -> RunStatus:
        """Of a run that begins or goes on; where `before` is of the same run, what is known of its sites is kept."""
        known = before.sites if before is not None and before.run == config.run_id else {}
        return cls(
            run=config.run_id,
            method=find_method(config.method).label,
            rounds=config.rounds,
            budget=config.privacy.epsilon_budget if config.releases or config.privacy.private_training else 0.0,
            timeout=config.federation.timeout,
            pid=os.getpid(),
            started=now,
            phase_since=now,
            last_progress=now,
            sites={site: known.get(site, SiteRecord()) for site in sites or config.federation.sites},
        )

    def restore(self, history: Iterable[RoundResult], accounts: dict[str, Account]) -> None:
        """Count what the rounds before have cost, and who has spent what."""
        for site in self.sites.values():
            site.asked_for, site.replies, site.failures = "", 0, {}
        for result in history:
            self._add_round(result)
            self.bytes_sent += result.bytes_sent
            self.bytes_received += result.bytes_received
            for client in result.client_metrics:
                self._site(client).replies += 1
            for failure in result.failures:
                self._count(failure)
        self.rounds_before = self.finished_rounds
        for client, account in accounts.items():
            self._spent(client, account)

    def update(self, event: ProgressEvent, now: float) -> None:
        self.longest_wait, self.last_progress = max(self.longest_wait, now - self.last_progress), now
        match event:
            case SitesConnected():
                self._enter("connect", now)
            case RunStarted():
                self._enter("prepare", now)
            case PretrainingProgress():
                self._enter("pretrain", now)
            case FeaturesProgress():
                self._enter("features", now)
            case OrdersSent():
                self._enter("score" if event.task != "train" else "train", now)
                self.bytes_sent += event.bytes
                for client in event.clients:
                    site = self._site(client)
                    site.asked_for, site.asked_at = event.task, now
            case ReplyReceived():
                self._receive(event, now)
            case AggregationStarted():
                self._enter("distil", now)
            case RoundFinished():
                self._finish_round(event.result, now)

    def end(self, outcome: Outcome, error: str, now: float) -> None:
        self.outcome, self.error, self.ended = outcome, printable(error), now

    @property
    def stuck_after(self) -> float:
        """Seconds without a sign of progress after which the run counts as stuck.

        Before a round is finished, nobody knows how long its parts take; `federation.timeout` ends it in any case.
        """
        if self.finished_rounds == self.rounds_before:
            return self.timeout
        return min(self.timeout, max(SHORTEST, PATIENCE * self.longest_wait))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, folder: Path) -> RunStatus | None:
        """None where there is none, or one that cannot be read."""
        try:
            table: dict[str, Any] = json.loads((folder / FILE).read_bytes())
            known = {item.name for item in fields(SiteRecord)}
            sites = {
                name: SiteRecord(**{key: value for key, value in site.items() if key in known})
                for name, site in table["sites"].items()
            }
            names = {item.name for item in fields(cls)}
            return cls(**{key: value for key, value in table.items() if key in names} | {"sites": sites})
        except (OSError, ValueError, TypeError, AttributeError, KeyError):
            return None

    def _enter(self, phase: str, now: float) -> None:
        if phase != self.phase:
            self.phase, self.phase_since = phase, now

    def _receive(self, event: ReplyReceived, now: float) -> None:
        site = self._site(event.client)
        site.asked_for, self.bytes_received = "", self.bytes_received + event.bytes
        if event.failure is not None:
            self.failed.setdefault(event.client, []).append(event.failure.kind)
            self._fail(event.failure, now)
            return
        site.last_reply, site.last_error_kind = now, ""
        site.replies += 1
        if event.account is not None:
            self._spent(event.client, event.account)

    def _finish_round(self, result: RoundResult, now: float) -> None:
        self._add_round(result)
        for failure in result.failures:
            known = self.failed.get(failure.client, [])
            if failure.kind in known:
                known.remove(failure.kind)
            else:  # a reply that was refused in the end, as its norm was too large
                self._fail(failure, now)
        self.failed = {}
        for site in self.sites.values():
            site.asked_for = ""  # spare ones are not waited for
        self._enter("between rounds", now)

    def _add_round(self, result: RoundResult) -> None:
        self.finished_rounds, self.last_seconds = result.round, dict(result.seconds)
        for phase, seconds in result.seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def _fail(self, failure: Failure, now: float) -> None:
        self._count(failure)
        site, reason = self._site(failure.client), printable(failure.reason)
        site.last_error, site.last_error_at, site.last_error_kind = reason, now, failure.kind

    def _count(self, failure: Failure) -> None:
        site = self._site(failure.client)
        site.failures = dict(Counter(site.failures) + Counter([failure.kind]))

    def _spent(self, client: str, account: Account) -> None:
        site = self._site(client)
        site.epsilon, site.delta = account.epsilon, account.delta

    def _site(self, client: str) -> SiteRecord:
        return self.sites.setdefault(client, SiteRecord())
