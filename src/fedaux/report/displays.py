"""Which bar of the panel an event moves, and whether it has a line where there is no
terminal: a class for each kind of display.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from fedaux.core.progress import (
    OrdersSent,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SweepProgress,
    WorkProgress,
)
from fedaux.report.progress import is_within_sum, step

_EVERY = 10.0  # seconds between lines of one task
_SOON = 1.0  # seconds after which work far below has a line
_NAME_WIDTH = 30  # columns of a bar's name: one line each in a terminal of 80


class ProgressBars:
    """The bars of a panel, by run and kind. The run is "" outside of sweeps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        name = Column(no_wrap=True, max_width=_NAME_WIDTH)
        note = Column(ratio=1, no_wrap=True, min_width=8)
        self.progress = Progress(
            TextColumn("{task.description}", style="dim", table_column=name),
            BarColumn(12),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[note]}", markup=False, table_column=note),
            expand=True,
            get_time=clock,
            speed_estimate_period=3600,  # a round may take minutes
        )
        self._tasks: dict[tuple[str, str], Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def find(self, run: str, kind: str) -> Task:
        return self._tasks[run, kind]

    def move(
        self, run: str, kind: str, name: str, done: int, total: int, note: str
    ) -> Task:
        """Move the bar of this kind, or add it. Under another name it starts again."""
        key = (run, kind)
        if key not in self._tasks:
            number = self.progress.add_task(name, total=total, note=note)
            added = [task for task in self.progress.tasks if task.id == number]
            self._tasks[key] = added[0]
        bar = self._tasks[key]
        if bar.description != name:
            self.progress.reset(bar.id, total=total, description=name)
        # the first step says when the work began, the others how fast it goes
        if total:
            self.progress.update(bar.id, total=total, completed=done)
        self.progress.update(bar.id, note=note)
        return bar

    def annotate(self, run: str, kind: str, note: str) -> Task:
        bar = self._tasks[run, kind]
        self.progress.update(bar.id, note=note)
        return bar

    def restart_clock(self, run: str, kind: str) -> None:
        """What came before says nothing about how fast the rest will go."""
        bar = self._tasks[run, kind]
        self.progress.reset(bar.id, total=bar.total, completed=int(bar.completed))

    def remove(self, run: str, kind: str) -> None:
        bar = self._tasks.pop((run, kind))
        self.progress.remove_task(bar.id)

    def remove_run(self, run: str) -> None:
        kinds = [kind for name, kind in self._tasks if name == run]
        for kind in kinds:
            self.remove(run, kind)


class Lines:
    """When work was first heard of, and when it last had a line, by its name."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun: dict[str, float] = {}
        self._printed: dict[str, float] = {}

    def printed(self, name: str) -> None:
        self._printed[name] = self._clock()

    def has(self, name: str) -> bool:
        return name in self._printed

    def is_due(self, name: str) -> bool:
        """Whether the last line is a while ago."""
        if name not in self._printed:
            return True
        return self._clock() - self._printed[name] >= _EVERY

    def takes_a_while(self, name: str) -> bool:
        now = self._clock()
        return now - self._begun.setdefault(name, now) >= _SOON


class Display(ABC):
    """How one event is shown."""

    def __init__(self, event: ProgressEvent) -> None:
        self.event = event
        self.run = event.run
        self.step = step(event)

    @abstractmethod
    def move(self, bars: ProgressBars) -> Task:
        """Move the bar of the event, and return it."""

    @abstractmethod
    def has_line(self, lines: Lines, bar: Task) -> bool:
        """Whether the user sees a line, where there is no terminal."""

    @abstractmethod
    def leave(self, bars: ProgressBars, bar: Task) -> None:
        """Remove the bar if it is finished and need not stay."""


class WholeDisplay(Display):
    """A run or a sweep as a whole."""

    def move(self, bars: ProgressBars) -> Task:
        # the panel has the figures of a single run below
        in_panel = isinstance(self.event, RoundFinished) and not self.run
        note = "" if in_panel else self.step.note
        name = self.run or self.step.task
        done = self.step.done
        total = self.step.total
        return bars.move(self.run, self.step.task, name, done, total, note)

    def has_line(self, lines: Lines, bar: Task) -> bool:
        return not self.run or isinstance(self.event, RoundFinished)

    def leave(self, bars: ProgressBars, bar: Task) -> None:
        """The bar stays."""


class PhaseDisplay(Display):
    """A step of a single run, or of an extractor that several runs share: its phases
    take turns in one bar.
    """

    kind = "now"

    def move(self, bars: ProgressBars) -> Task:
        task, done, total, note = self.step
        name = f"{self.run}, {task}" if self.run else task
        return bars.move(self.run, self.kind, name, done, total, note)

    def has_line(self, lines: Lines, bar: Task) -> bool:
        if self._is_silent():
            return False
        return bar.finished or lines.is_due(bar.description)

    def leave(self, bars: ProgressBars, bar: Task) -> None:
        if bar.finished and self.run:
            bars.remove_run(self.run)

    def _is_silent(self) -> bool:
        """The line of the round follows, and many runs have many small steps."""
        event = self.event
        if isinstance(event, OrdersSent | ReplyReceived) and event.task == "train":
            return True
        if is_within_sum(event):
            return True
        phase = event.phase if isinstance(event, WorkProgress) else ""
        if self.run:
            return phase != "pretrain"
        return phase == "distil"


class NoteDisplay(PhaseDisplay):
    """A step of one of several runs: the note next to the bar of its rounds."""

    def move(self, bars: ProgressBars) -> Task:
        task, done, total, note = self.step
        progress = f"{done}/{total}" if total else note
        return bars.annotate(self.run, "rounds", f"{task}: {progress}")

    def leave(self, bars: ProgressBars, bar: Task) -> None:
        """The bar is that of the run."""


class WorkDisplay(PhaseDisplay):
    """Work far below: a bar of its own until it is done, and no line if it is quick."""

    kind = "work"

    def has_line(self, lines: Lines, bar: Task) -> bool:
        name = bar.description
        if self.run or not lines.takes_a_while(name):
            return False
        ends_a_line = bar.finished and lines.has(name)
        return ends_a_line or lines.is_due(name)

    def leave(self, bars: ProgressBars, bar: Task) -> None:
        if bar.finished:
            bars.remove(self.run, self.kind)


def display(event: ProgressEvent, beside_others: bool) -> Display:
    """Return the display of an event. `beside_others` says that it belongs to a run of
    a sweep that has started.
    """
    if isinstance(event, RunStarted | RoundFinished | SweepProgress):
        return WholeDisplay(event)
    if beside_others:
        return NoteDisplay(event)
    if isinstance(event, WorkProgress) and not event.phase:
        return WorkDisplay(event)
    return PhaseDisplay(event)
