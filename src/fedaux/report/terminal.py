"""What a run looks like while it runs and when it is done: bars in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

_EVERY = 10.0  # seconds between lines of one task where there is no terminal


class Live:
    """One bar per phase with its rate and time left. `tell` is what the engine calls."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars: dict[str, TaskID] = {}
        self.spoken: dict[str, float] = {}
        self.progress = Progress(
            TextColumn("{task.description:<16}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.progress.stop()
        if kind is KeyboardInterrupt:
            hint = "Stopped. The same command, or `fedaux resume FOLDER`, goes on after the last finished round."
            Console(stderr=True).print(hint, soft_wrap=True)

    def tell(self, what: str, done: int, of: int, note: str) -> None:
        """Phases that come and go within a round share one bar; methods and pre-training keep theirs."""
        if not self.console.is_terminal:
            self._say(what, done, of, note)
            return
        passing = what.startswith(("round", "score"))
        key = "passing" if passing else what
        if key not in self.bars:
            self.bars[key] = self.progress.add_task(what, total=of, note=note)
        self.progress.update(self.bars[key], description=what, completed=done, total=of, note=note)
        if passing and done == of:
            self.progress.remove_task(self.bars.pop(key))

    def _say(self, what: str, done: int, of: int, note: str) -> None:
        if what.startswith("round"):
            return
        now = time.monotonic()
        if done == of or now - self.spoken.get(what, -_EVERY) >= _EVERY:
            self.spoken[what] = now
            self.console.print(f"{what}: {done}/{of} {note}", highlight=False)


def results_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row, style="bold" if row[0] == "FedAUX" else None)
    return table


def sparkline(values: Sequence[float]) -> str:
    """Accuracies between 0 and 1 as a word of bars."""
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * value))] for value in values)
