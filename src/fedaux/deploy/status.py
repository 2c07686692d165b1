"""`fedaux deploy status`: what a run and its sites are doing, from the run's folder and
from the SuperLink.

It is read each time, from outside the run, so that a run that hangs or was killed
shows. Times are seconds since 1970.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fedaux.config.schema import Config
from fedaux.core.errors import FedauxError
from fedaux.core.failures import Refusal
from fedaux.core.versions import versions_text
from fedaux.deploy.env import DeployError
from fedaux.deploy.link import FlowerRun, LinkError, Node
from fedaux.report.terminal import format_bytes, format_seconds
from fedaux.runs.status import RunStatus, SiteRecord, is_alive

RUN = "run"  # below the server's folder, as run.sh has it
START_TIMEOUT = 120.0  # seconds in which a submitted run should have begun
STYLES = {
    "running": "green",
    "finished": "green",
    "stuck": "bold red",
    "failed": "bold red",
    "starting": "cyan",
}
TIMES = {
    "phase_since",
    "started",
    "ended",
    "last_progress",
    "asked_at",
    "last_reply",
    "last_error_at",
}
State = Literal["none", "starting", "running", "stuck", "finished", "failed", "stopped"]


class Watched(Protocol):
    """A SuperLink whose nodes and runs can be listed."""

    def check(self) -> None: ...
    def nodes(self) -> list[Node]: ...
    def last_run(self) -> FlowerRun | None: ...


@dataclass(frozen=True)
class SiteStatus:
    """The status of a site. `left` is its budget left by the server's settings; its own
    settings may refuse earlier.
    """

    name: str
    connection: str  # online, offline, registered (never seen), unregistered, unknown
    since: float | None = None  # of the connection
    left: float | None = None
    record: SiteRecord = field(default_factory=SiteRecord)


@dataclass(frozen=True)
class Status:
    """The status of a run. `record` is the run's own status file, empty if it has not
    begun.
    """

    time: float
    state: State
    flower_run: int | None = None
    stuck_after: float | None = None  # seconds without progress
    link: bool = True  # whether the SuperLink answers
    error: str = ""
    record: RunStatus = field(default_factory=RunStatus)
    sites: tuple[SiteStatus, ...] = ()
    problems: tuple[str, ...] = ()  # each with what to do; none: all is well
    versions: str = field(default_factory=versions_text)  # of the server's packages

    @property
    def phase(self) -> str:
        """The current phase of the run; "" if nothing is running."""
        return (
            self.record.phase
            if self.record.rounds and self.state in ("running", "stuck")
            else ""
        )

    @property
    def round(self) -> int:
        """The current or last round; 0 without a run."""
        current = self.record.finished_rounds + (self.record.phase != "between rounds")
        return min(max(current, 1), self.record.rounds)

    @property
    def silence(self) -> float:
        """Seconds without a sign of progress."""
        return (
            max(0.0, self.time - self.record.last_progress)
            if self.record.last_progress
            else 0.0
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the status for JSON."""
        sites = [_flat(site) for site in self.sites]
        return {**_flat(self), "phase": self.phase, "round": self.round, "sites": sites}


def _flat(status: Status | SiteStatus) -> dict[str, Any]:
    """Return the fields of a status and of its record. Times that never were, and an
    infinite ε, become None.
    """
    table = {
        **asdict(status.record),
        **{key: value for key, value in vars(status).items() if key != "record"},
    }
    return {
        key: None if value == math.inf or (key in TIMES and not value) else value
        for key, value in table.items()
    }


def server_folder(folder: Path) -> Path:
    """Return the server's folder, given that folder or the deployment's."""
    folder = folder.expanduser().absolute()
    for found in (folder, folder / "server"):
        if (found / "server.env").is_file():
            return found
    raise DeployError(
        f"{folder} is neither a server's folder nor that of a deployment (there is no "
        "server.env); `fedaux deploy init` writes one"
    )


def read_status(
    server: Path,
    link: Watched,
    now: float | None = None,
    stuck_after: float | None = None,
    folder: Path | None = None,
) -> Status:
    """Read the status of a run. A run counts as stuck after `stuck_after` seconds, by
    default what it has measured.

    `folder` holds the run's status, if that is not below the server's folder: a
    regional server has part of the sites, and a server that merges regions has no
    folder but the run's.
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
        names: Sequence[str] = (
            () if folder else Config.load(server / "fedaux.toml").federation.sites
        )
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
        stuck_after=limit if current else None,
        link=answers,
        error=reason,
        record=current or RunStatus(),
        sites=tuple(
            _sites(names, record, nodes, answers, waiting=state in ("running", "stuck"))
        ),
    )
    deployed = (server / "run.sh").is_file()
    return replace(
        status,
        problems=(*_run_problems(status, server if deployed else None), *problems),
    )


def _is_old(record: RunStatus, alive: bool, flower: FlowerRun | None) -> bool:
    """Whether this record is of an earlier run, which ended or fell silent before the
    current one was submitted.
    """
    goes_on = alive and record.outcome == "running"
    return (
        not goes_on
        and flower is not None
        and _seconds(flower.since) > max(record.ended, record.last_progress)
    )


def _state(
    record: RunStatus | None,
    alive: bool,
    flower: FlowerRun | None,
    now: float,
    limit: float,
) -> tuple[State, str]:
    """Return (state, error) from the run's own record, or from the SuperLink if the run
    has left none.
    """
    if record is None and flower is None:
        return "none", ""
    if record is None and flower is not None and flower.lives:
        return "stuck" if now - _seconds(flower.since) > limit else "starting", ""
    if record is None and flower is not None:
        states: dict[str, State] = {
            "finished:completed": "finished",
            "finished:stopped": "stopped",
        }
        return states.get(flower.status, "failed"), flower.details
    assert record is not None
    if alive and record.outcome == "running":
        return "stuck" if now - record.last_progress > limit else "running", ""
    if (
        record.outcome in ("running", "failed")
        and flower is not None
        and flower.status == "finished:stopped"
    ):
        return "stopped", ""  # however its process ended
    if record.outcome != "running":
        return record.outcome, record.error
    return (
        "failed",
        (
            "the server's process is gone, and has not said why: it was killed, or its "
            "machine went down"
        ),
    )


def _sites(
    names: Sequence[str],
    record: RunStatus | None,
    nodes: Sequence[Node],
    answers: bool,
    waiting: bool,
) -> Iterator[SiteStatus]:
    """Yield the status of each site in the settings or the run, or with a key;
    `waiting`: show who has not answered.
    """
    known, budget = (record.sites, record.budget) if record else ({}, 0.0)
    by_name = {
        name.strip(): node
        for node in nodes
        for name in node.name.split(",")
        if name.strip()
    }
    for name in dict.fromkeys([*names, *known, *by_name]):
        site, node = known.get(name, SiteRecord()), by_name.get(name)
        left = max(0.0, budget - (site.epsilon or 0.0)) if budget else None
        yield SiteStatus(
            name,
            connection=node.status
            if node
            else "unregistered"
            if answers
            else "unknown",
            since=_seconds(node.since) if node and node.since else None,
            left=0.0 if site.last_error_kind == Refusal.BUDGET else left,
            record=site if waiting else replace(site, asked_for=""),
        )


def _run_problems(status: Status, server: Path | None) -> Iterator[str]:
    """Say what is wrong and what to do; `server` is the folder of a deployment's
    server.
    """
    command, other = (
        (server / "run.sh", "supernode.sh")
        if server
        else ("The same command", "flwr run")
    )
    waiting = (
        [site for site in status.sites if site.record.asked_for]
        if status.state == "stuck"
        else []
    )
    if status.state == "failed":
        after = (
            f" after round {status.record.finished_rounds}"
            if status.record.finished_rounds
            else ""
        )
        reason = status.error.rstrip(".") or "see its log"
        yield f"the run has failed{after}: {reason}. {command} goes on with it."
    elif status.state == "stopped":
        after = (
            f" after round {status.record.finished_rounds} of {status.record.rounds}"
            if status.record.rounds
            else ""
        )
        yield f"the run was stopped{after}. {command} goes on with it; another run needs a folder of its own."
    elif status.state == "stuck" and not status.phase:
        yield "a run was handed in and has not begun: is superexec.sh running?"
    elif status.state == "stuck":
        silent = f"no sign of progress for {format_seconds(status.silence)}, in the phase {status.phase}"
        if waiting:
            names = ", ".join(
                f"{site.name} ({site.connection})" for site in waiting[:10]
            )
            yield f"{silent}; not answered: {names}. Look at the log of {other} there."
        else:
            yield f"{silent}, which is the server's own work. Look at its log, its memory and its disk."
    gone = (
        {"offline"}
        if status.state == "none"
        else {"offline", "registered", "unregistered"}
    )
    missing = [
        site
        for site in status.sites
        if site.connection in gone and not (waiting and site.record.asked_for)
    ]
    if missing and status.state != "finished":
        names = ", ".join(f"{site.name} ({site.connection})" for site in missing[:10])
        yield f"not connected: {names}. The log of {other} there says why."


def _seconds(moment: str) -> float:
    """Return the seconds since 1970 of an ISO 8601 time; Flower's are in UTC."""
    found = datetime.fromisoformat(moment)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def status_panel(status: Status) -> RenderableType:
    """Render the whole status for a terminal."""
    parts: list[RenderableType] = [_facts(status), _site_table(status)]
    for site in status.sites:
        if site.record.last_error:
            text = f"{site.name}, {_ago(site.record.last_error_at, status.time)}: {site.record.last_error}"
            parts.append(Text(text, style="yellow", overflow="fold"))
    parts += [
        Text(f"problem: {problem}", style="bold red", overflow="fold")
        for problem in status.problems
    ]
    return Panel(
        Group(*parts),
        title=Text(status.record.method or "fedaux", style="bold"),
        title_align="left",
        subtitle=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.time)),
        subtitle_align="right",
        border_style="dim",
    )


def watch(console: Console, read: Callable[[], Status], every: float) -> Status:
    """Redraw the panel every few seconds until Ctrl-C; return the last status."""
    status = read()
    with Live(status_panel(status), console=console, auto_refresh=False) as screen:
        try:
            while True:
                time.sleep(every)
                status = read()
                screen.update(status_panel(status), refresh=True)
        except KeyboardInterrupt:
            return status


def _facts(status: Status) -> Table:
    grid, record = Table.grid(padding=(0, 2)), status.record
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    grid.add_row("run", Text(_run(status), style=STYLES.get(status.state, "")))
    if record.last_progress and status.phase:
        limit = (
            f"; stuck after {format_seconds(status.stuck_after)}"
            if status.stuck_after
            else ""
        )
        grid.add_row("progress", f"{format_seconds(status.silence)} ago{limit}")
    for name, seconds in (
        ("last round", record.last_seconds),
        ("all rounds", record.seconds),
    ):
        if seconds:
            grid.add_row(
                name,
                ", ".join(f"{phase} {value:.1f} s" for phase, value in seconds.items()),
            )
    told = [site for site in status.sites if site.record.versions]
    for versions in dict.fromkeys(
        [status.versions, *(site.record.versions for site in told)] if told else []
    ):
        names = [*(["the server"] if versions == status.versions else [])]
        names += [site.name for site in told if site.record.versions == versions]
        grid.add_row("versions", f"{versions}: {', '.join(names)}")
    if record.bytes_sent or record.bytes_received:
        sent, received = (
            format_bytes(record.bytes_sent),
            format_bytes(record.bytes_received),
        )
        grid.add_row("arrays", f"{sent} sent, {received} received")
    return grid


def _run(status: Status) -> str:
    words = {"none": "none yet: run.sh starts one", "starting": "is being started"}
    text, record = words.get(status.state, status.state), status.record
    if not record.rounds:
        return text
    if not status.phase:
        return f"{text} after round {record.finished_rounds} of {record.rounds}"
    lasting = format_seconds(max(0.0, status.time - record.phase_since))
    return (
        f"{text}: round {status.round} of {record.rounds}, {status.phase} for {lasting}"
    )


def _site_table(status: Status) -> Table:
    table, now = Table(header_style="bold", box=None, padding=(0, 2, 0, 0)), status.time
    for name in (
        "site",
        "connection",
        "doing",
        "last reply",
        "ε spent",
        "left",
        "failed",
    ):
        table.add_column(name, no_wrap=name != "failed")
    styles = {"online": "green", "offline": "red", "unregistered": "red"}
    for site in status.sites:
        record, spent = site.record, site.record.epsilon
        table.add_row(
            Text(site.name),
            Text(
                f"{site.connection} {_for(site.since, now)}",
                style=styles.get(site.connection, ""),
            ),
            Text(
                f"{record.asked_for} {_for(record.asked_at, now)}"
                if record.asked_for
                else ""
            ),
            Text(_ago(record.last_reply, now)),
            Text(
                "?" if spent is None else "∞" if math.isinf(spent) else f"{spent:.3g}"
            ),
            Text("" if site.left is None else f"{round(site.left, 3):g}"),
            Text(
                ", ".join(f"{kind} {count}" for kind, count in record.failures.items())
            ),
        )
    return table


def _for(moment: float | None, now: float) -> str:
    return format_seconds(max(0.0, now - moment)) if moment else ""


def _ago(moment: float | None, now: float) -> str:
    return f"{_for(moment, now)} ago" if moment else "never"
