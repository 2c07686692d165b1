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
    Notice,
    OrdersSent,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SweepProgress,
    WorkProgress,
    report_to,
)
from fedaux.core.results import RoundResult
from fedaux.report.progress import describe, step
from fedaux.report.terminal import format_seconds, sparkline

_EVERY = 10.0  # seconds between lines of one task where there is no terminal
_SHOWN = 12  # finished runs of a sweep
_SOON = 1.0  # seconds after which work far below has a line
_STOPPED = "Stopped. The same command continues; what is finished is kept."
_NAME = 30  # columns of the name of a bar: one line each in a terminal of 80


@dataclass
class _Run:
    started: RunStarted
    results: list[RoundResult]
    last: RoundFinished | None = None

    def facts(self) -> Table:
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(ratio=1)
        if self.results:
            last, curve = (
                self.results[-1],
                [result.mean_accuracy for result in self.results],
            )
            grid.add_row(
                "accuracy",
                Text.from_markup(f"[bold]{curve[-1]:.3f}[/bold]  {sparkline(curve)}"),
            )
            if last.effective_teachers:
                text = f"{last.effective_teachers:.1f} effective of {last.teachers or len(last.client_metrics)}"
                if last.largest_teacher:
                    text += "; largest weight: {}, {:.0%}".format(*last.largest_teacher)
                grid.add_row("teachers", Text(text))
            if (balanced := last.mean_metric("balanced_accuracy")) is not None:
                text = f"{balanced:.3f}; the commonest class alone has accuracy {last.mean_metric('majority'):.3f}"
                grid.add_row("balanced", Text(text))
        if self.last and self.last.warning:
            grid.add_row(
                "warning", Text(self.last.warning, style="bold yellow", overflow="fold")
            )
        if self.last and self.last.privacy:
            grid.add_row("privacy", Text(self.last.privacy))
        failures = [failure for result in self.results for failure in result.failures]
        if failures:
            text = f"{len(failures)}, last {failures[-1].client}: {failures[-1].reason}"
            grid.add_row("failed", Text(text, style="yellow", overflow="fold"))
        return grid


class Live:
    """`with Live(console) as live: run(…, on_progress=live.on_progress)`; `hint` is
    what Ctrl-C says.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        hint: Callable[[], str] = lambda: _STOPPED,
    ) -> None:
        self.console, self._clock, self._hint = console, clock, hint
        self.bars = Progress(
            TextColumn(
                "{task.description}",
                style="dim",
                table_column=Column(no_wrap=True, max_width=_NAME),
            ),
            BarColumn(12),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn(
                "{task.fields[note]}",
                markup=False,
                table_column=Column(ratio=1, no_wrap=True, min_width=8),
            ),
            expand=True,
            get_time=clock,
            speed_estimate_period=3600,  # a round may take minutes
        )
        self._tasks: dict[tuple[str, str], Task] = {}  # by run and kind of bar
        self._running: dict[str, _Run] = {}  # "" is the name of a run outside of sweeps
        self._finished: list[tuple[str, str]] = []
        self._printed: dict[str, float] = {}
        self._begun, self._listening = clock(), ExitStack()
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
            Console(stderr=True).print(
                self._hint(), soft_wrap=True, highlight=False, markup=False
            )
            raise SystemExit(Exit.STOPPED)

    def on_progress(self, event: ProgressEvent) -> None:
        if isinstance(event, Notice):
            self.console.print(
                event.text, highlight=False, markup=False, soft_wrap=True
            )
            return
        running = self._running.get(event.run)
        if isinstance(event, RunStarted):
            self._running[event.run] = _Run(event, list(event.history))
        elif isinstance(event, RoundFinished) and running:
            running.results.append(event.result)
            running.last = event
        elif (
            isinstance(event, OrdersSent)
            and event.task == "train"
            and running
            and not running.last
        ):
            # how long preparation took says nothing about them
            rounds = self._tasks[event.run, "rounds"]
            self.bars.reset(
                rounds.id, total=rounds.total, completed=int(rounds.completed)
            )
        bar = self._move(event)
        if not self.console.is_terminal:
            self._print(event, bar)
        if isinstance(event, SweepProgress) and event.ended:
            self._remove(event.ended)
            self._running.pop(event.ended, None)
            self._finished.append(
                (
                    event.ended,
                    "failed" if event.accuracy is None else f"{event.accuracy:.3f}",
                )
            )
        elif bar.finished and self._tasks.get((event.run, "work")) is bar:
            self._remove(event.run, "work")
        elif (
            bar.finished and event.run and event.run not in self._running
        ):  # an extractor that several runs share
            self._remove(event.run)

    def _move(self, event: ProgressEvent) -> Task:
        """The event's bar. Steps within a run share one; in a sweep they are the note
        of the run's own.
        """
        run, (name, done, total, note) = event.run, step(event)
        spans = isinstance(event, RunStarted | RoundFinished | SweepProgress)
        if run in self._running and run and not spans:
            bar = self._tasks[run, "rounds"]
            self.bars.update(
                bar.id, note=f"{name}: {done}/{total}" if total else f"{name}: {note}"
            )
            return bar
        below = isinstance(event, WorkProgress) and not event.phase
        key = (run, "work" if below else name if spans else "now")
        name = run if spans and run else ", ".join(filter(None, (run, name)))
        if key not in self._tasks:
            number = self.bars.add_task(name, total=total, note=note)
            (self._tasks[key],) = (
                task for task in self.bars.tasks if task.id == number
            )
        bar = self._tasks[key]
        if bar.description != name:
            self.bars.reset(bar.id, total=total, description=name)
        # the first step says when the work began, the others how fast it goes
        if total:
            self.bars.update(bar.id, total=total, completed=done)
        # the panel has it below
        in_panel = isinstance(event, RoundFinished) and not run
        self.bars.update(bar.id, note="" if in_panel else note)
        return bar

    def _remove(self, run: str, kind: str = "") -> None:
        for key in [key for key in self._tasks if key == (run, kind or key[1])]:
            self.bars.remove_task(self._tasks.pop(key).id)

    def _print(self, event: ProgressEvent, bar: Task) -> None:
        """Print a line for work that the user waits for; frequent reports get one every
        few seconds.
        """
        if isinstance(event, OrdersSent | ReplyReceived) and event.task == "train":
            return  # the line of the round follows
        phase = event.phase if isinstance(event, WorkProgress) else None
        if phase == "distil" or (
            event.run and phase != "pretrain" and not isinstance(event, RoundFinished)
        ):
            return  # so it does here, and many runs have many small steps
        now, name = self._clock(), bar.description
        if phase == "" and now - self._printed.setdefault(f"begin {name}", now) < _SOON:
            return
        always = isinstance(event, RunStarted | RoundFinished | SweepProgress)
        # quick work far below has no line at all
        over = bar.finished and (phase != "" or name in self._printed)
        if always or over or now - self._printed.get(name, -_EVERY) >= _EVERY:
            self._printed[name] = now
            left = None if bar.finished else bar.time_remaining
            more = f", about {format_seconds(left)} left" if left else ""
            self.console.print(
                describe(event) + more, highlight=False, markup=False, soft_wrap=True
            )

    def render(self) -> RenderableType:
        finished = Table.grid(padding=(0, 2))
        for name, outcome in self._finished[-_SHOWN:]:
            finished.add_row(Text(name, style="dim"), Text(outcome))
        parts: list[RenderableType] = [
            self.bars if self._tasks else Text("starting …", style="dim")
        ]
        title = "fedaux"
        # a copy: the screen is drawn in a thread of its own
        running = list(self._running.values())
        if len(running) == 1:
            started = running[0].started
            title = (
                f"[bold]{started.method}[/bold]  [dim]{escape(started.setting)}[/dim]"
            )
            parts.append(running[0].facts())
        # it moves whatever else does
        passed = f"[dim]{format_seconds(self._clock() - self._begun)}[/dim]"
        panel = Panel(
            Group(*parts),
            title=title,
            title_align="left",
            border_style="dim",
            subtitle=passed,
            subtitle_align="right",
        )
        return Group(finished, panel) if self._finished else panel
