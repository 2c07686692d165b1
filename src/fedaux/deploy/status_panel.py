"""The status of a run as a panel for a terminal, drawn anew every few seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fedaux.deploy.status import SiteStatus, Status
from fedaux.report.terminal import format_bytes, format_seconds

STYLES = {"running": "green", "finished": "green", "stuck": "bold red", "failed": "bold red", "starting": "cyan"}


def status_panel(status: Status) -> RenderableType:
    parts: list[RenderableType] = [_facts(status), _site_table(status)]
    parts += [
        Text(
            f"{site.name}, {_ago(site.last_error_at, status.time)}: {site.last_error}", style="yellow", overflow="fold"
        )
        for site in status.sites
        if site.last_error
    ]
    parts += [Text(f"problem: {problem}", style="bold red", overflow="fold") for problem in status.problems]
    title = Text(status.method or "fedaux", style="bold")
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.time))
    return Panel(
        Group(*parts), title=title, title_align="left", subtitle=moment, subtitle_align="right", border_style="dim"
    )


def watch(console: Console, read: Callable[[], Status], every: float) -> Status:
    """Until Ctrl-C; the last status."""
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
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    grid.add_row("run", Text(_run(status), style=STYLES.get(status.state, "")))
    if status.last_progress and status.state in ("running", "stuck"):
        limit = f"; stuck after {format_seconds(status.stuck_after)}" if status.stuck_after else ""
        grid.add_row("progress", f"{format_seconds(status.silence)} ago{limit}")
    if status.last_seconds:
        grid.add_row("last round", _seconds(status.last_seconds))
    if status.seconds:
        grid.add_row("all rounds", _seconds(status.seconds))
    if status.bytes_sent or status.bytes_received:
        sent, received = format_bytes(status.bytes_sent), format_bytes(status.bytes_received)
        grid.add_row("arrays", f"{sent} sent, {received} received")
    return grid


def _run(status: Status) -> str:
    words = {"none": "none yet: run.sh starts one", "starting": "is being started"}
    text = words.get(status.state, status.state)
    if not status.rounds:
        return text
    if not status.phase:
        return f"{text} after round {status.finished_rounds} of {status.rounds}"
    lasting = format_seconds(max(0.0, status.time - (status.phase_since or status.time)))
    return f"{text}: round {status.round} of {status.rounds}, {status.phase} for {lasting}"


def _site_table(status: Status) -> Table:
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in ("site", "connection", "doing", "last reply", "ε spent", "left", "failed"):
        table.add_column(name, no_wrap=name != "failed")
    for site in status.sites:
        table.add_row(*_site_row(site, status.time))
    return table


def _site_row(site: SiteStatus, now: float) -> tuple[Text, ...]:
    style = {"online": "green", "offline": "red", "unregistered": "red"}.get(site.connection, "")
    return (
        Text(site.name),
        Text(f"{site.connection}{f' {_for(site.since, now)}' if site.since else ''}", style=style),
        Text(f"{site.asked_for} {_for(site.asked_at, now)}" if site.asked_for else ""),
        Text(_ago(site.last_reply, now)),
        Text("?" if site.epsilon is None else "∞" if math.isinf(site.epsilon) else f"{site.epsilon:.3g}"),
        Text("" if site.left is None else f"{round(site.left, 3):g}"),
        Text(", ".join(f"{kind} {count}" for kind, count in site.failures.items())),
    )


def _for(moment: float | None, now: float) -> str:
    return format_seconds(max(0.0, now - moment)) if moment else ""


def _ago(moment: float | None, now: float) -> str:
    return f"{format_seconds(max(0.0, now - moment))} ago" if moment else "never"


def _seconds(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {value:.1f} s" for phase, value in seconds.items())
