"""`fedaux deploy status`: what a run and its sites are doing, from the run's folder and
from the SuperLink.

It is read each time, from outside the run, so that a run that hangs or was killed
shows. Times are seconds since 1970.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from fedaux.runs.status import APPROVAL, RunStatus, SiteRecord, is_alive

RUN = "run"  # below the server's folder, as run.sh has it
START_TIMEOUT = 120.0  # seconds in which a submitted run should have begun
STYLES = {
    "running": "green",
    "finished": "green",
    "stuck": "bold red",
    "failed": "bold red",
    "starting": "cyan",
    "waiting": "cyan",
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
State = Literal[
    "none",
    "starting",
    "waiting",  # for owners, who may take days
    "running",
    "stuck",
    "finished",
    "failed",
    "stopped",
]


class Watched(Protocol):
    """A SuperLink whose nodes and runs can be listed."""

    def check(self) -> None: ...
    def nodes(self) -> list[Node]: ...
    def last_run(self) -> FlowerRun | None: ...


@dataclass(frozen=True)
class SiteStatus:
    """The status of a site. `left` is its budget left by the server's settings. Its own
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
        """The current phase of the run, or "" if nothing is running."""
        if self.record.rounds and self.state in ("running", "stuck", "waiting"):
            return self.record.phase
        return ""

    @property
    def round(self) -> int:
        """The current or last round, or 0 without a run."""
        current = self.record.finished_rounds + (self.record.phase != "between rounds")
        return min(max(current, 1), self.record.rounds)

    @property
    def silence(self) -> float:
        """Seconds without a sign of progress."""
        if not self.record.last_progress:
            return 0.0
        return max(0.0, self.time - self.record.last_progress)

    def to_dict(self) -> dict[str, Any]:
        """Return the status for JSON."""
        sites = [_flat(site) for site in self.sites]
        return {**_flat(self), "phase": self.phase, "round": self.round, "sites": sites}


def _flat(status: Status | SiteStatus) -> dict[str, Any]:
    """Return the fields of a status and of its record. Times that never were, and an
    infinite ε, become None.
    """
    table = asdict(status.record)
    for key, value in vars(status).items():
        if key != "record":
            table[key] = value
    for key, value in table.items():
        if value == math.inf or (key in TIMES and not value):
            table[key] = None
    return table


def server_folder(folder: Path) -> Path:
    """Return the server's folder, given that folder or the deployment's."""
    folder = folder.expanduser().absolute()
    for candidate in (folder, folder / "server"):
        if (candidate / "server.env").is_file():
            return candidate
    raise DeployError(
        f"Cannot show the status: {folder} is neither a server's folder nor that of a "
        "deployment (there is no server.env). Name one that `fedaux deploy init` has "
        "written."
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
    if now is None:
        now = time.time()
    home = folder or server / RUN
    record = RunStatus.load(home)
    problems: list[str] = []
    nodes: list[Node] = []
    flower = None
    answers = True
    try:
        link.check()
        nodes = link.nodes()
        flower = link.last_run()
    except LinkError as error:
        answers = False
        problems.append(str(error))
    names: Sequence[str] = ()
    try:
        if folder is None:
            names = Config.load(server / "fedaux.toml").federation.sites
    except (FedauxError, OSError) as error:
        problems.append(f"the server's settings cannot be read: {error}")
    alive = is_alive(home, now)
    current = record
    if record is not None and _is_old(record, alive, flower):
        current = None
    limit = stuck_after or START_TIMEOUT
    measured = None
    if current is not None:
        limit = stuck_after or current.stuck_after
        measured = limit
    state, reason = _state(current, alive, flower, now, limit)
    waiting = state in ("running", "stuck", "waiting")
    status = Status(
        time=now,
        state=state,
        flower_run=None if flower is None else flower.run_id,
        stuck_after=measured,
        link=answers,
        error=reason,
        record=current or RunStatus(),
        sites=tuple(_sites(names, record, nodes, answers, waiting)),
    )
    deployed = (server / "run.sh").is_file()
    of_the_run = _run_problems(status, server if deployed else None)
    return replace(status, problems=(*of_the_run, *problems))


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
    if alive and record.outcome == "running" and record.phase == APPROVAL:
        return "waiting", ""
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
            "the server's process is gone, without a reason: it was killed, or its "
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
    """Yield the status of each site in the settings or the run, or with a key.
    `waiting`: show who has not answered.
    """
    record = record or RunStatus()
    nodes_by_site: dict[str, Node] = {}
    for node in nodes:
        for name in node.name.split(","):
            if name.strip():
                nodes_by_site[name.strip()] = node
    for name in dict.fromkeys([*names, *record.sites, *nodes_by_site]):
        site = record.sites.get(name, SiteRecord())
        if not waiting:
            site = replace(site, asked_for="")
        connection, since = _connection(nodes_by_site.get(name), answers)
        left = _budget_left(site, record.budget)
        yield SiteStatus(name, connection, since, left, site)


def _connection(node: Node | None, answers: bool) -> tuple[str, float | None]:
    """(a site's connection, since when), as far as the SuperLink says."""
    if node is None:
        return ("unregistered" if answers else "unknown"), None
    if not node.since:
        return node.status, None
    return node.status, _seconds(node.since)


def _budget_left(site: SiteRecord, budget: float) -> float | None:
    """What the server's settings leave a site, or None if they set no budget."""
    if site.last_error_kind == Refusal.BUDGET:
        return 0.0
    if not budget:
        return None
    return max(0.0, budget - (site.epsilon or 0.0))


def _run_problems(status: Status, server: Path | None) -> Iterator[str]:
    """Say what is wrong and what to do. `server` is the folder of a deployment's
    server.
    """
    command = "The same command"
    node_log = "flwr run"
    if server is not None:
        command = str(server / "run.sh")
        node_log = "supernode.sh"
    waiting: list[SiteStatus] = []
    if status.state == "stuck":
        waiting = [site for site in status.sites if site.record.asked_for]
    record = status.record
    after = ""
    if status.state == "failed":
        if record.finished_rounds:
            after = f" after round {record.finished_rounds}"
        reason = status.error.rstrip(".") or "see its log"
        yield f"the run has failed{after}: {reason}. {command} continues it."
    elif status.state == "stopped":
        if record.rounds:
            after = f" after round {record.finished_rounds} of {record.rounds}"
        yield (
            f"the run was stopped{after}. {command} continues it. Another run needs "
            "another folder."
        )
    elif status.state == "stuck" and not status.phase:
        yield "a run was handed in and has not begun: is superexec.sh running?"
    elif status.state == "stuck":
        silent = (
            f"no sign of progress for {format_seconds(status.silence)}, in the phase "
            f"{status.phase}"
        )
        if waiting:
            yield (
                f"{silent}. Not answered: {_first_ten(waiting)}. Look at the log of "
                f"{node_log} there."
            )
        else:
            yield (
                f"{silent}, which is the server's own work. Look at its log, its "
                "memory and its disk."
            )
    missing = [
        site
        for site in status.sites
        if _is_gone(site, status.state) and site not in waiting
    ]
    if missing and status.state != "finished":
        yield (
            f"not connected: {_first_ten(missing)}. The log of {node_log} there has "
            "the reason."
        )


def _is_gone(site: SiteStatus, state: State) -> bool:
    """Whether a site is not connected. Before the first run, one that never was need
    not be.
    """
    if state == "none":
        return site.connection == "offline"
    return site.connection in ("offline", "registered", "unregistered")


def _first_ten(sites: Sequence[SiteStatus]) -> str:
    return ", ".join(f"{site.name} ({site.connection})" for site in sites[:10])


def _seconds(moment: str) -> float:
    """Return the seconds since 1970 of an ISO 8601 time; Flower's are in UTC."""
    parsed = datetime.fromisoformat(moment)
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return parsed.timestamp()


def status_panel(status: Status) -> RenderableType:
    """Render the whole status for a terminal."""
    blocks: list[RenderableType] = [_run_table(status), _site_table(status)]
    for site in status.sites:
        record = site.record
        if record.last_error:
            ago = _ago(record.last_error_at, status.time)
            line = f"{site.name}, {ago}: {record.last_error}"
            blocks.append(Text(line, style="yellow", overflow="fold"))
    for problem in status.problems:
        line = f"problem: {problem}"
        blocks.append(Text(line, style="bold red", overflow="fold"))
    return Panel(
        Group(*blocks),
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


def _run_table(status: Status) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    grid.add_row("run", Text(_run(status), style=STYLES.get(status.state, "")))
    record = status.record
    if record.last_progress and status.phase:
        progress = f"{format_seconds(status.silence)} ago"
        if status.stuck_after:
            progress += f", stuck after {format_seconds(status.stuck_after)}"
        grid.add_row("progress", progress)
    if record.last_seconds:
        grid.add_row("last round", _by_phase(record.last_seconds))
    if record.seconds:
        grid.add_row("all rounds", _by_phase(record.seconds))
    for versions, parties in _parties_by_versions(status).items():
        grid.add_row("versions", f"{versions}: {', '.join(parties)}")
    if record.bytes_sent or record.bytes_received:
        sent = format_bytes(record.bytes_sent)
        received = format_bytes(record.bytes_received)
        grid.add_row("arrays", f"{sent} sent, {received} received")
    return grid


def _by_phase(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {value:.1f} s" for phase, value in seconds.items())


def _parties_by_versions(status: Status) -> dict[str, list[str]]:
    """Who runs which versions; empty while no site has said it."""
    parties = {status.versions: ["the server"]}
    for site in status.sites:
        if site.record.versions:
            parties.setdefault(site.record.versions, []).append(site.name)
    if parties == {status.versions: ["the server"]}:
        return {}
    return parties


def _run(status: Status) -> str:
    words = {"none": "none yet: run.sh starts one", "starting": "is being started"}
    state = words.get(status.state, status.state)
    record = status.record
    if not record.rounds:
        return state
    if not status.phase:
        return f"{state} after round {record.finished_rounds} of {record.rounds}"
    lasting = format_seconds(max(0.0, status.time - record.phase_since))
    if status.state == "waiting":
        names = [
            site.name for site in status.sites if site.record.asked_for == APPROVAL
        ]
        return (
            f"waiting for the owners of {', '.join(names)} for {lasting}: `fedaux site "
            "pending` and `fedaux site approve` at each"
        )
    return (
        f"{state}: round {status.round} of {record.rounds}, {status.phase} for "
        f"{lasting}"
    )


COLUMNS = ("site", "connection", "doing", "last reply", "ε spent", "left", "failed")


def _site_table(status: Status) -> Table:
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in COLUMNS:
        table.add_column(name, no_wrap=name != "failed")
    styles = {"online": "green", "offline": "red", "unregistered": "red"}
    now = status.time
    for site in status.sites:
        record = site.record
        connection = f"{site.connection} {_for(site.since, now)}"
        doing = ""
        if record.asked_for:
            doing = f"{record.asked_for} {_for(record.asked_at, now)}"
        left = ""
        if site.left is not None:
            left = f"{round(site.left, 3):g}"
        failures = [f"{kind} {count}" for kind, count in record.failures.items()]
        table.add_row(
            Text(site.name),
            Text(connection, style=styles.get(site.connection, "")),
            Text(doing),
            Text(_ago(record.last_reply, now)),
            Text(_spent_on(record)),
            Text(left),
            Text(", ".join(failures)),
        )
    return table


def _spent_on(record: SiteRecord) -> str:
    """Say what a site has spent in all, and apart what was for the run's look."""
    total = _spent(record.epsilon)
    if record.epsilon_look is None:
        return total
    look = f"look {_spent(record.epsilon_look)}"
    if record.epsilon_before_look:
        look = f"before {_spent(record.epsilon_before_look)}, {look}"
    return f"{total} ({look})"


def _spent(epsilon: float | None) -> str:
    if epsilon is None:
        return "?"
    if math.isinf(epsilon):
        return "∞"
    return f"{epsilon:.3g}"


def _for(moment: float | None, now: float) -> str:
    if not moment:
        return ""
    return format_seconds(max(0.0, now - moment))


def _ago(moment: float | None, now: float) -> str:
    if not moment:
        return "never"
    return f"{_for(moment, now)} ago"
