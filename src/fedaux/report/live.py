"""A run as it goes: one panel in a terminal, plain lines elsewhere. It only listens: to `tell`, and as a tracker."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedaux.algorithms.results import mean_accuracy
from fedaux.algorithms.run_state import RunState
from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.core.errors import Exit
from fedaux.privacy.accounting import round_up
from fedaux.report.terminal import duration, sparkline

_EVERY = 10.0  # seconds between lines of one task where there is no terminal
_ORDER = {"runs": 1, "rounds": 2, "now": 3}


@dataclass
class Bar:
    """Some work: how much is done, since when, and from where it went on."""

    what: str
    done: int
    of: int
    note: str
    began: float
    first: int

    def left(self, now: float) -> float | None:
        """Seconds, if it goes on as it went."""
        made = self.done - self.first
        return (now - self.began) / made * (self.of - self.done) if made > 0 else None


class Live:
    """`with Live(console) as live: run(…, tell=live.tell, trackers=[live])`."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars: dict[str, Bar] = {}
        self.finished: list[tuple[str, str]] = []
        self.config: Config | None = None
        self.state: RunState | None = None
        self._folder, self._over = "", False
        self._facts: list[tuple[str, RenderableType]] = []
        self._spoken: dict[str, float] = {}
        self._said = ""
        self._screen = RichLive(console=console, get_renderable=self.render, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._screen.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._screen.stop()
        if kind is KeyboardInterrupt:
            hint = "Stopped. The same command, or `fedaux resume FOLDER`, goes on after the last finished round."
            Console(stderr=True).print(hint, soft_wrap=True)
            raise SystemExit(Exit.STOPPED)

    # what it hears

    def tell(self, what: str, done: int, of: int, note: str) -> None:
        """Work that comes and goes within a run shares one bar; rounds, and what spans several runs, have their own."""
        key = "rounds" if self._is_method(what) else what if self.config is None or what == "runs" else "now"
        bar, now = self.bars.get(key), time.monotonic()
        if bar is None or bar.what != what or done < bar.done:
            bar = self.bars[key] = Bar(what, done, of, note, now, done)
        bar.done, bar.of, bar.note = done, of, note
        if done == bar.first:
            bar.began = now  # what came before the first step says nothing about the next
        if not self.console.is_terminal:
            self._say(bar, now)
        elif self.config is None and done == of and key != "runs":  # one of several processes
            ended = self.bars.pop(key)
            if not what.startswith("pretrain"):
                self.finished.append((what, ended.note))

    def start(self, config: Config, folder: Path, state: RunState | None) -> None:
        self.config, self.state, self._folder, self._over = config, state, folder.name, False
        self._facts = _facts_of(state) if state else []
        self.bars = {key: bar for key, bar in self.bars.items() if key == "runs"}

    def saved(self, state: RunState) -> None:
        self.state, self._facts = state, _facts_of(state)

    def end(self) -> None:
        self._over = True
        if self.state is not None and self.state.history:
            curve = [mean_accuracy(record) for record in self.state.history]
            self.finished.append((self._folder, f"{curve[-1]:.3f}  {sparkline(curve)}"))

    def _is_method(self, what: str) -> bool:
        """Told with the name of the run's method, or with a longer one that begins so, such as `FedAUX, α = 0.1`."""
        return self.config is not None and what.startswith(find_method(self.config.method).label)

    # what it shows

    def _say(self, bar: Bar, now: float) -> None:
        if bar.what.startswith("round"):
            return  # the line of the method follows each round
        line = f"{bar.what}: {bar.done}/{bar.of} {bar.note}"
        if line == self._said:
            return  # saved again, with nothing new
        whole = bar.what.startswith("Fed") or bar.what == "runs"
        if whole or bar.done == bar.of or now - self._spoken.get(bar.what, -_EVERY) >= _EVERY:
            self._spoken[bar.what], self._said = now, line
            left = bar.left(now)
            more = f", about {duration(left)} left" if left else ""
            self.console.print(line + more, highlight=False, soft_wrap=True)

    def render(self) -> RenderableType:
        parts: list[RenderableType] = []
        before = self.finished[:-1] if self._over else self.finished
        if before:
            parts.append(_table_of(before[-12:]))
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(ratio=1)
        for key, bar in sorted(self.bars.items(), key=lambda item: _ORDER.get(item[0], 0)):
            grid.add_row("rounds" if key == "rounds" else bar.what, self._bar(bar))
        for name, text in self._facts:
            grid.add_row(name, text)
        parts.append(Panel(grid, title=self._title(), title_align="left", border_style="dim"))
        return Group(*parts)

    def _title(self) -> str:
        if self.config is None:
            return "fedaux"
        config = self.config
        spread = f", α = {config.data.alpha:g}" if config.data.partition == "dirichlet" else ""
        clients = len(config.federation.sites) or config.data.clients
        networks = ", ".join(spec.label for spec in config.prototypes)
        words = f"{config.data.source}: {clients} clients{spread}, {networks}, seed {config.seed}"
        return f"[bold]{find_method(config.method).label}[/bold]  [dim]{escape(words)}[/dim]"

    def _bar(self, bar: Bar) -> RenderableType:
        now = time.monotonic()
        left = bar.left(now)
        words = f"{bar.done}/{bar.of}  {duration(now - bar.began)}"
        words += f", about [bold]{duration(left)}[/bold] left" if left else ""
        note = "" if self._is_method(bar.what) else bar.note
        line = Table.grid(padding=(0, 2))
        line.add_row(ProgressBar(total=bar.of, completed=bar.done, width=24), Text.from_markup(words), Text(note))
        return line


def _facts_of(state: RunState) -> list[tuple[str, RenderableType]]:
    """What a state says, once for each state: a panel is drawn eight times a second, and ledgers grow with a run."""
    found: list[tuple[str, RenderableType]] = []
    ledger = state.ledger
    if state.history:
        last, curve = state.history[-1], [mean_accuracy(record) for record in state.history]
        found.append(("accuracy", Text.from_markup(f"[bold]{curve[-1]:.3f}[/bold]  {sparkline(curve)}")))
        if last["teachers"]:
            words = f"{last['teachers']:.1f} of {last['clients']} count on an example"
            if last["loudest"]:
                words += f"; {last['loudest'][0]} weighs most, {last['loudest'][1]:.0%}"
            found.append(("teachers", Text(words)))
    if ledger.clients:
        what = "scores and models" if ledger.models_covered else "scores only, models are not covered"
        words = f"ε = {round_up(ledger.worst)}, δ = {ledger.delta:g}, {len(ledger.clients)} clients: {what}"
        found.append(("privacy", Text("NOT PRIVATE, seeded noise" if ledger.unsafe else words)))
    failures = [one for record in state.history for one in record["failures"]]
    if failures:
        client, reason = failures[-1]
        found.append(("failed", Text(f"{len(failures)}, last {client}: {reason}", style="yellow", overflow="fold")))
    return found


def _table_of(runs: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for name, words in runs:
        table.add_row(Text(name, style="dim"), Text(words))
    return table
