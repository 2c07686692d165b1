"""A run as it goes: one panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.markup import escape
from rich.panel import Panel
from rich.progress import Task
from rich.table import Table
from rich.text import Text

from fedaux.core.errors import Exit
from fedaux.core.metrics import format_percent
from fedaux.core.progress import (
    Notice,
    OrdersSent,
    ProgressEvent,
    RoundFinished,
    RunStarted,
    SweepProgress,
    report_to,
)
from fedaux.core.results import RoundResult
from fedaux.report.displays import Lines, ProgressBars, display
from fedaux.report.progress import describe
from fedaux.report.terminal import format_seconds, print_plainly, sparkline

_SHOWN = 12  # finished runs of a sweep
_STOPPED = "Stopped. The same command continues, and finished work is kept."


@dataclass
class _Run:
    started: RunStarted
    results: list[RoundResult]
    last: RoundFinished | None = None

    def figures(self) -> Table:
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(ratio=1)
        if self.results:
            self._add_result(grid, self.results[-1])
        if self.last and self.last.warning:
            warning = Text(self.last.warning, style="bold yellow", overflow="fold")
            grid.add_row("warning", warning)
        if self.last and self.last.privacy:
            grid.add_row("privacy", Text(self.last.privacy))
        failures = [failure for result in self.results for failure in result.failures]
        if failures:
            last = failures[-1]
            words = f"{len(failures)}, last {last.client}: {last.reason}"
            grid.add_row("failed", Text(words, style="yellow", overflow="fold"))
        return grid

    def _add_result(self, grid: Table, last: RoundResult) -> None:
        measured = [result.mean_accuracy for result in self.results]
        curve = [accuracy for accuracy in measured if accuracy is not None]
        accuracy = "not tested at the server"
        if curve:
            accuracy = f"[bold]{format_percent(curve[-1])}[/bold]  {sparkline(curve)}"
        grid.add_row("accuracy", Text.from_markup(accuracy))
        if last.effective_teachers:
            count = last.teachers or len(last.client_metrics)
            words = f"{last.effective_teachers:.1f} effective of {count}"
            if last.largest_teacher:
                client, share = last.largest_teacher
                words += f", largest weight: {client}, {share:.0%}"
            grid.add_row("teachers", Text(words))
        balanced = last.mean_metric("balanced_accuracy")
        majority = last.mean_metric("majority")
        if balanced is not None and majority is not None:
            words = (
                f"{format_percent(balanced)}, while the commonest class has accuracy "
                f"{format_percent(majority)}"
            )
            grid.add_row("balanced", Text(words))


class Live:
    """`with Live(console) as live: run(…, on_progress=live.on_progress)`. `hint` is
    what Ctrl-C says.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        hint: Callable[[], str] = lambda: _STOPPED,
    ) -> None:
        self.console = console
        self.bars = ProgressBars(clock)
        self._clock = clock
        self._begun = clock()
        self._hint = hint
        self._lines = Lines(clock)
        self._running: dict[str, _Run] = {}  # "" is the name of a run outside of sweeps
        self._finished: list[tuple[str, str]] = []  # runs of a sweep, with outcomes
        self._listening = ExitStack()
        self._screen = RichLive(
            console=console,
            get_renderable=self.render,
            refresh_per_second=8,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._listening.enter_context(report_to(self.on_progress))
        if self.console.is_terminal:
            self._screen.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._screen.stop()
        self._listening.close()
        if kind is KeyboardInterrupt:
            print_plainly(Console(stderr=True), self._hint())
            raise SystemExit(Exit.STOPPED)

    def on_progress(self, event: ProgressEvent) -> None:
        if isinstance(event, Notice):
            print_plainly(self.console, event.text)
            return
        self._remember(event)
        beside_others = event.run != "" and event.run in self._running
        shown = display(event, beside_others)
        bar = shown.move(self.bars)
        if not self.console.is_terminal and shown.has_line(self._lines, bar):
            self._print(event, bar)
        shown.leave(self.bars, bar)
        if isinstance(event, SweepProgress) and event.ended:
            self._end_run(event)

    def _remember(self, event: ProgressEvent) -> None:
        """Keep the figures of the run."""
        if isinstance(event, RunStarted):
            self._running[event.run] = _Run(event, list(event.history))
            return
        running = self._running.get(event.run)
        if running is None:
            return
        if isinstance(event, RoundFinished):
            running.results.append(event.result)
            running.last = event
            return
        begins_training = isinstance(event, OrdersSent) and event.task == "train"
        if begins_training and running.last is None:
            # how long preparation took says nothing about rounds
            self.bars.restart_clock(event.run, "rounds")

    def _end_run(self, event: SweepProgress) -> None:
        self.bars.remove_run(event.ended)
        self._running.pop(event.ended, None)
        outcome = "failed" if event.accuracy is None else format_percent(event.accuracy)
        self._finished.append((event.ended, outcome))

    def _print(self, event: ProgressEvent, bar: Task) -> None:
        """Print a line, with the time left where it is known."""
        self._lines.printed(bar.description)
        line = describe(event)
        if not bar.finished and bar.time_remaining:
            line += f", about {format_seconds(bar.time_remaining)} left"
        print_plainly(self.console, line)

    def render(self) -> RenderableType:
        content: list[RenderableType] = [Text("starting …", style="dim")]
        if len(self.bars):
            content = [self.bars.progress]
        title = "fedaux"
        # a copy: the screen is drawn in a thread of its own
        running = list(self._running.values())
        if len(running) == 1:
            started = running[0].started
            setting = escape(started.setting)
            title = f"[bold]{started.method}[/bold]  [dim]{setting}[/dim]"
            content.append(running[0].figures())
        # it moves whatever else does
        passed = format_seconds(self._clock() - self._begun)
        panel = Panel(
            Group(*content),
            title=title,
            title_align="left",
            border_style="dim",
            subtitle=f"[dim]{passed}[/dim]",
            subtitle_align="right",
        )
        if not self._finished:
            return panel
        finished = Table.grid(padding=(0, 2))
        for name, outcome in self._finished[-_SHOWN:]:
            finished.add_row(Text(name, style="dim"), Text(outcome))
        return Group(finished, panel)
