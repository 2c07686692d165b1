"""`fedaux deploy status`: what a run and its sites are doing, from the run's folder and from the SuperLink.

Read afresh each time, and from outside: a run that hangs or was killed is seen as well. Times are seconds since 1970.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from fedaux.config.schema import Config
from fedaux.core.errors import FedauxError
from fedaux.core.messages import Refusal
from fedaux.deploy.layout import DeployError
from fedaux.deploy.link import FlowerRun, LinkError, Node
from fedaux.report.terminal import format_seconds
from fedaux.runs.run_status import RunStatus, SiteRecord
from fedaux.runs.status_file import is_alive

RUN = "run"  # below the server's folder, as run.sh has it
START_TIMEOUT = 120.0  # seconds in which a run that was handed in should have begun
State = Literal["none", "starting", "running", "stuck", "finished", "failed", "stopped"]


class Watched(Protocol):
    """A SuperLink that can be asked."""

    def check(self) -> None: ...
    def nodes(self) -> list[Node]: ...
    def last_run(self) -> FlowerRun | None: ...


@dataclass(frozen=True)
class SiteStatus:
    """`left` is what the server's own settings leave of a budget; a site's own alone decide, and may refuse earlier."""

    name: str
    connection: str  # online, offline, registered (never seen), unregistered, unknown
    since: float | None  # of the connection
    asked_for: str  # what it has not answered yet
    asked_at: float | None
    last_reply: float | None
    replies: int
    failures: Mapping[str, int]
    epsilon: float | None  # spent, as the site says itself
    left: float | None
    last_error: str
    last_error_at: float | None


@dataclass(frozen=True)
class Status:
    time: float
    state: State
    run: str = ""
    flower_run: int | None = None
    method: str = ""
    round: int = 0  # the current one, or the last
    finished_rounds: int = 0
    rounds: int = 0
    phase: str = ""
    phase_since: float | None = None
    started: float | None = None
    ended: float | None = None
    last_progress: float | None = None
    stuck_after: float | None = None  # seconds without progress
    seconds: Mapping[str, float] = field(default_factory=dict)  # by phase, of all rounds
    last_seconds: Mapping[str, float] = field(default_factory=dict)
    bytes_sent: int = 0
    bytes_received: int = 0
    link: bool = True  # whether the SuperLink answers
    error: str = ""
    sites: tuple[SiteStatus, ...] = ()
    problems: tuple[str, ...] = ()  # each with what to do; none: all is well

    @property
    def silence(self) -> float:
        """Seconds without a sign of progress."""
        return max(0.0, self.time - self.last_progress) if self.last_progress else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON: an ε without bound, of seeded noise, is null."""
        table = asdict(self)
        for site in table["sites"]:
            site["epsilon"] = None if site["epsilon"] == float("inf") else site["epsilon"]
        return table


def server_folder(folder: Path) -> Path:
    """The server's own, given that or the deployment's."""
    folder = folder.expanduser().absolute()
    for found in (folder, folder / "server"):
        if (found / "server.env").is_file():
            return found
    raise DeployError(
        f"{folder} is neither a server's folder nor that of a deployment (there is no server.env); "
        "`fedaux deploy init` writes one"
    )


def read_status(
    server: Path,
    link: Watched,
    now: float | None = None,
    stuck_after: float | None = None,
    folder: Path | None = None,
) -> Status:
    """`stuck_after` seconds without progress, instead of what the run itself has measured.

    `folder` is where the run's status is, if not below the server's: a regional server has part of the sites. One that
    merges regions has no folder but the run's.
    """
    now, home = time.time() if now is None else now, folder or server / RUN
    record, problems = RunStatus.load(home), list[str]()
    nodes, flower, answers = list[Node](), None, True
    try:
        link.check()
        nodes, flower = link.nodes(), link.last_run()
    except LinkError as error:
        answers = False
        problems.append(str(error))
    try:
        names: Sequence[str] = () if folder else Config.load(server / "fedaux.toml").federation.sites
    except (FedauxError, OSError) as error:
        names = ()
        problems.append(f"the server's settings cannot be read: {error}")
    alive = is_alive(home, now)
    current = None if record is None or _is_old(record, alive, flower) else record
    limit = stuck_after or (current.stuck_after if current else START_TIMEOUT)
    state, reason = _state(current, alive, flower, now, limit)
    status = Status(
        time=now,
        state=state,
        flower_run=flower.run_id if flower else None,
        link=answers,
        error=reason,
        sites=tuple(_sites(names, record, nodes, answers)),
        **(_facts(current, limit) if current else {}),
    )
    if state not in ("running", "stuck"):  # nobody is waited for
        status = replace(status, phase="", sites=tuple(replace(site, asked_for="") for site in status.sites))
    return replace(status, problems=(*_run_problems(status, server), *problems))


def _is_old(record: RunStatus, alive: bool, flower: FlowerRun | None) -> bool:
    """Whether a run was handed in after the one that has left this record had ended, or was last heard of."""
    goes_on = alive and record.outcome == "running"
    return not goes_on and flower is not None and _seconds(flower.since) > max(record.ended, record.last_progress)


def _state(
    record: RunStatus | None, alive: bool, flower: FlowerRun | None, now: float, limit: float
) -> tuple[State, str]:
    """(state, error): the run's own word, or the SuperLink's of a run that has left none."""
    if record is None and flower is None:
        return "none", ""
    if record is None and flower is not None and flower.lives:
        return "stuck" if now - _seconds(flower.since) > limit else "starting", ""
    if record is None and flower is not None:
        states: dict[str, State] = {"finished:completed": "finished", "finished:stopped": "stopped"}
        return states.get(flower.status, "failed"), flower.details
    assert record is not None
    if alive and record.outcome == "running":
        return "stuck" if now - record.last_progress > limit else "running", ""
    if record.outcome in ("running", "failed") and flower is not None and flower.status == "finished:stopped":
        return "stopped", ""  # however its process took it
    if record.outcome != "running":
        return record.outcome, record.error
    return "failed", "the server's process is gone, and has not said why: it was killed, or its machine went down"


def _facts(record: RunStatus, limit: float) -> dict[str, Any]:
    current = record.finished_rounds + (record.phase != "between rounds")
    return {
        "run": record.run,
        "method": record.method,
        "round": min(max(current, 1), record.rounds),
        "finished_rounds": record.finished_rounds,
        "rounds": record.rounds,
        "phase": record.phase,
        "phase_since": record.phase_since,
        "started": record.started,
        "ended": record.ended or None,
        "last_progress": record.last_progress,
        "stuck_after": limit,
        "seconds": record.seconds,
        "last_seconds": record.last_seconds,
        "bytes_sent": record.bytes_sent,
        "bytes_received": record.bytes_received,
    }


def _sites(
    names: Sequence[str], record: RunStatus | None, nodes: Sequence[Node], answers: bool
) -> Iterator[SiteStatus]:
    """Of the settings, of the run, and whoever else has a key."""
    known = record.sites if record else {}
    by_name = {name.strip(): node for node in nodes for name in node.name.split(",") if name.strip()}
    for name in dict.fromkeys([*names, *known, *by_name]):
        site, node = known.get(name, SiteRecord()), by_name.get(name)
        spent, budget = site.epsilon, record.budget if record else 0.0
        refused = site.last_error_kind == Refusal.BUDGET
        left = 0.0 if refused else max(0.0, budget - (spent or 0.0)) if budget else None
        yield SiteStatus(
            name=name,
            connection=node.status if node else "unregistered" if answers else "unknown",
            since=_seconds(node.since) if node and node.since else None,
            asked_for=site.asked_for,
            asked_at=site.asked_at or None,
            last_reply=site.last_reply or None,
            replies=site.replies,
            failures=site.failures,
            epsilon=spent,
            left=left,
            last_error=site.last_error,
            last_error_at=site.last_error_at or None,
        )


def _run_problems(status: Status, server: Path) -> Iterator[str]:
    deployed = (server / "run.sh").is_file()
    command, other = (server / "run.sh", "supernode.sh") if deployed else ("The same command", "flwr run")
    if status.state == "failed":
        after = f" after round {status.finished_rounds}" if status.finished_rounds else ""
        reason = status.error.rstrip(".") or "see its log"
        yield f"the run has failed{after}: {reason}. {command} goes on with it."
    elif status.state == "stuck" and not status.phase:
        yield "a run was handed in and has not begun: is superexec.sh running?"
    elif status.state == "stuck":
        waiting = [site for site in status.sites if site.asked_for]
        silent = f"no sign of progress for {format_seconds(status.silence)}, in the phase {status.phase}"
        if waiting:
            names = ", ".join(f"{site.name} ({site.connection})" for site in waiting[:10])
            yield f"{silent}; not answered: {names}. Look at the log of {other} there."
        else:
            yield f"{silent}, which is the server's own work. Look at its log, its memory and its disk."


def _seconds(moment: str) -> float:
    """Of an ISO 8601 text; Flower's are in UTC."""
    found = datetime.fromisoformat(moment)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
