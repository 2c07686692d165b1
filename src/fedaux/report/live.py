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
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from fedaux.core.errors import Exit
from fedaux.core.progress import (
    AggregationStarted,
    Notice,
    PretrainingProgress,
    ProgressEvent,
    RoundFinished,
    RunStarted,
    SweepProgress,
    SweepRunProgress,
    TrainingProgress,
    WorkProgress,
)
from fedaux.core.results import RoundResult
from fedaux.core.work import listening
from fedaux.report.progress import describe, step
from fedaux.report.terminal import format_seconds, sparkline

_EVERY = 10.0  # seconds between lines of one task where there is no terminal
_SHOWN = 12  # finished runs of a sweep
_SOON = 1.0  # seconds after which work that counts its steps has a line
_NAME = 30  # columns of the name of a bar: one line each in a terminal of 80


@dataclass
class _Run:
    started: RunStarted
    results: list[RoundResult]
    privacy: str = ""
    warning: str = ""

    def facts(self) -> Table:
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(ratio=1)
        if self.results:
            last, curve = self.results[-1], [result.mean_accuracy for result in self.results]
            grid.add_row("accuracy", Text.from_markup(f"[bold]{curve[-1]:.3f}[/bold]  {sparkline(curve)}"))
            if last.effective_teachers:
                text = f"{last.effective_teachers:.1f} effective of {last.teachers or len(last.client_metrics)}"
                if last.largest_teacher:
                    text += "; largest weight: {}, {:.0%}".format(*last.largest_teacher)
                grid.add_row("teachers", Text(text))
            if (balanced := last.mean_metric("balanced_accuracy")) is not None:
                text = f"{balanced:.3f}; the commonest class alone has accuracy {last.mean_metric('majority'):.3f}"
                grid.add_row("balanced", Text(text))
        if self.warning:
            grid.add_row("warning", Text(self.warning, style="bold yellow", overflow="fold"))
        if self.privacy:
            grid.add_row("privacy", Text(self.privacy))
        failures = [failure for result in self.results for failure in result.failures]
        if failures:
            text = f"{len(failures)}, last {failures[-1].client}: {failures[-1].reason}"
            grid.add_row("failed", Text(text, style="yellow", overflow="fold"))
        return grid


def _the_same_command() -> str:
    return "Stopped. The same command continues; what is finished is kept."


class Live:
    """`with Live(console) as live: run(…, on_progress=live.on_progress)`; `hint` is what Ctrl-C says."""

    def __init__(
        self, console: Console, clock: Callable[[], float] = time.monotonic, hint: Callable[[], str] = _the_same_command
    ) -> None:
        self.console, self._clock, self._hint = console, clock, hint
        self.bars = Progress(
            TextColumn("{task.description}", style="dim", table_column=Column(no_wrap=True, max_width=_NAME)),
            BarColumn(12),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", markup=False, table_column=Column(ratio=1, no_wrap=True, min_width=8)),
            expand=True,
            get_time=clock,
            speed_estimate_period=3600,  # a round may take minutes
        )
        self._tasks: dict[tuple[str, str], Task] = {}  # by run and kind of bar
        self._running: dict[str, _Run] = {}  # "" is the name of a run outside of sweeps
        self._finished: list[tuple[str, str]] = []
        self._printed: dict[str, float] = {}
        self._begun, self._listening = clock(), ExitStack()
        self._screen = RichLive(console=console, get_renderable=self.render, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._listening.enter_context(listening(self.on_progress))
        if self.console.is_terminal:
            self._screen.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._screen.stop()
        self._listening.close()
        if kind is KeyboardInterrupt:
            Console(stderr=True).print(self._hint(), soft_wrap=True, highlight=False, markup=False)
            raise SystemExit(Exit.STOPPED)

    def on_progress(self, event: ProgressEvent) -> None:
        run, inner = (event.run, event.event) if isinstance(event, SweepRunProgress) else ("", event)
        if isinstance(inner, Notice):
            self.console.print(inner.text, highlight=False, markup=False, soft_wrap=True)
            return
        if isinstance(inner, RunStarted):
            self._running[run] = _Run(inner, list(inner.history))
        elif isinstance(inner, RoundFinished):
            self._running[run].results.append(inner.result)
            self._running[run].privacy = inner.privacy
            self._running[run].warning = inner.warning
        elif isinstance(inner, TrainingProgress) and not inner.done:
            self._restart(run)
        bar = self._move(run, inner)
        if not self.console.is_terminal:
            self._print(event, inner, bar)
        if isinstance(inner, SweepProgress) and inner.run:
            self._end(inner)
        elif isinstance(inner, WorkProgress):
            self._end_work(run, bar)
        elif bar.finished and run and run not in self._running:  # an extractor that several runs share
            self._remove(run)

    def _move(self, run: str, event: ProgressEvent) -> Task:
        """The event's bar. Steps within a run share one; in a sweep they are the note of the run's own."""
        name, done, total, note = step(event)
        spans = isinstance(event, RunStarted | RoundFinished | SweepProgress)
        if run and run in self._running and not spans:
            bar = self._tasks[run, "rounds"]
            self.bars.update(bar.id, note=f"{name}: {done}/{total}" if total else f"{name}: {note}")
            return bar
        kind = "work" if isinstance(event, WorkProgress) else name if spans else "now"
        key, name = (run, kind), run if spans and run else ", ".join(filter(None, (run, name)))
        if key not in self._tasks:
            number = self.bars.add_task(name, total=total, note=note)
            (self._tasks[key],) = (task for task in self.bars.tasks if task.id == number)
        bar = self._tasks[key]
        if bar.description != name:
            self.bars.reset(bar.id, total=total, description=name)
        if total:  # the first step says when the work began, the others how fast it goes
            self.bars.update(bar.id, total=total, completed=done)
        self.bars.update(
            bar.id, note=note if run or not isinstance(event, RoundFinished) else ""
        )  # the panel has it below
        return bar

    def _restart(self, run: str) -> None:
        """Rounds begin: what was prepared before them says nothing about how long they take."""
        bar, running = self._tasks.get((run, "rounds")), self._running.get(run)
        if bar and running and len(running.results) == len(running.started.history):
            self.bars.reset(bar.id, total=bar.total, completed=int(bar.completed))

    def _end_work(self, run: str, bar: Task) -> None:
        if bar.finished and self._tasks.get((run, "work")) is bar:
            self.bars.remove_task(self._tasks.pop((run, "work")).id)

    def _remove(self, run: str) -> None:
        for key in [key for key in self._tasks if key[0] == run]:
            self.bars.remove_task(self._tasks.pop(key).id)

    def _end(self, event: SweepProgress) -> None:
        self._remove(event.run)
        self._running.pop(event.run, None)
        self._finished.append((event.run, "failed" if event.accuracy is None else f"{event.accuracy:.3f}"))

    def _print(self, event: ProgressEvent, inner: ProgressEvent, bar: Task) -> None:
        """A line for what a person waits for; work that is often heard of has one every few seconds."""
        if isinstance(inner, TrainingProgress | AggregationStarted):
            return  # the line of the round follows
        if isinstance(event, SweepRunProgress) and not isinstance(inner, RoundFinished | PretrainingProgress):
            return  # many runs have many small steps
        now, name = self._clock(), bar.description
        if isinstance(inner, WorkProgress) and now - self._printed.setdefault(f"begin {name}", now) < _SOON:
            return
        work = isinstance(inner, WorkProgress) and name not in self._printed
        always = isinstance(inner, RunStarted | RoundFinished | SweepProgress) or (bar.finished and not work)
        if always or now - self._printed.get(name, -_EVERY) >= _EVERY:
            self._printed[name] = now
            left = None if bar.finished else bar.time_remaining
            more = f", about {format_seconds(left)} left" if left else ""
            self.console.print(describe(event) + more, highlight=False, markup=False, soft_wrap=True)

    def render(self) -> RenderableType:
        finished = Table.grid(padding=(0, 2))
        for name, outcome in self._finished[-_SHOWN:]:
            finished.add_row(Text(name, style="dim"), Text(outcome))
        parts: list[RenderableType] = [self.bars if self._tasks else Text("starting …", style="dim")]
        title = "fedaux"
        running = list(self._running.values())  # a copy: the screen is drawn in a thread of its own
        if len(running) == 1:
            started = running[0].started
            title = f"[bold]{started.method}[/bold]  [dim]{escape(started.setting)}[/dim]"
            parts.append(running[0].facts())
        passed = f"[dim]{format_seconds(self._clock() - self._begun)}[/dim]"  # it moves whatever else does
        panel = Panel(
            Group(*parts), title=title, title_align="left", border_style="dim", subtitle=passed, subtitle_align="right"
        )
        return Group(finished, panel) if self._finished else panel
