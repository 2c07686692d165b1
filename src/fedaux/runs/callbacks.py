"""Callbacks of a run: JSON lines always; `trackers` and your own on demand.

A round is saved before any callback hears of it. One that raises costs its own record, never the round.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaux.config.schema import Config
from fedaux.core.io import write_atomically
from fedaux.core.metrics import METRIC_NAMES
from fedaux.core.results import RoundResult
from fedaux.server.run_state import RunState

log = logging.getLogger(__name__)
METRICS, CLIENTS = "metrics.jsonl", "clients.jsonl"
Row = dict[str, Any]


class Callback:
    """Override what you need. A resumed run starts again, with the state that it continues from."""

    def on_run_start(self, config: Config, folder: Path, state: RunState | None) -> None:
        """Before anything is done."""

    def on_round_end(self, state: RunState) -> None:
        """After a round is saved; `state.history[-1]` is its result."""

    def on_run_end(self) -> None:
        """Also of a run that was stopped or has failed."""


class Callbacks:
    """Calls each in turn. What one raises is logged once; it is called again after the next round.

    One that fails to start is left out.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = list(callbacks)
        self._warned: set[int] = set()

    def on_run_start(self, config: Config, folder: Path, state: RunState | None) -> None:
        self._callbacks = [each for each in self._callbacks if self._call(each, "on_run_start", config, folder, state)]

    def on_round_end(self, state: RunState) -> None:
        for each in self._callbacks:
            self._call(each, "on_round_end", state)

    def on_run_end(self) -> None:
        for each in self._callbacks:
            self._call(each, "on_run_end")

    def _call(self, callback: Callback, hook: str, *arguments: Any) -> bool:
        try:
            getattr(callback, hook)(*arguments)
        except Exception as error:
            if id(callback) not in self._warned:
                self._warned.add(id(callback))
                name, reason = type(callback).__name__, f"{type(error).__name__}: {error}"
                log.warning("%s failed in %s (%s); the run continues, its record may have gaps", name, hook, reason)
            return False
        return True


def round_metrics(result: RoundResult) -> Row:
    """One flat row of numbers; what does not exist, such as teachers of FedAVG, is left out."""
    row = {
        "round": result.round,
        "accuracy": result.mean_accuracy,
        **(_named("accuracy", result.accuracy) if len(result.accuracy) > 1 else {}),
        **{name: result.mean_metric(name) for name in METRIC_NAMES},
        "local_loss": result.local_loss,
        "distill_loss": result.distill_loss,
        "effective_teachers": result.effective_teachers,
        "largest_teacher_share": result.largest_teacher[1] if result.largest_teacher else None,
        "clients": len(result.client_metrics),
        "failed": len(result.failures),
        "epsilon": result.epsilon,
        "bytes_sent": result.bytes_sent,
        "bytes_received": result.bytes_received,
        "seconds": sum(result.seconds.values()),
        **_named("seconds", result.seconds),
    }
    return {key: value for key, value in row.items() if value is not None}


def client_rows(result: RoundResult) -> list[Row]:
    """One row for each client asked in a round: its metrics, or why it failed."""
    counted = [{"round": result.round, "client": name, **vars(one)} for name, one in result.client_metrics.items()]
    failed = [{"round": result.round, "client": one.client, "failure": one.reason} for one in result.failures]
    return counted + failed


def _named(prefix: str, values: Mapping[str, float]) -> Row:
    return {f"{prefix}/{name}": value for name, value in values.items()}


class JsonLines(Callback):
    """`metrics.jsonl` and `clients.jsonl`, and at the end the same as Parquet where pyarrow is installed."""

    def on_run_start(self, config: Config, folder: Path, state: RunState | None) -> None:
        self._folder, self._written = folder, -1
        self._write(state.history if state else ())

    def on_round_end(self, state: RunState) -> None:
        self._write(state.history)

    def _write(self, history: Sequence[RoundResult]) -> None:
        """Append what is new. At the start, and after a write that failed, write everything anew."""
        before, self._written = self._written, -1
        for name, rows_of in ((METRICS, lambda result: [round_metrics(result)]), (CLIENTS, client_rows)):
            rows = (row for result in history[max(before, 0) :] for row in rows_of(result))
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            if before < 0:
                write_atomically(self._folder / name, text.encode())
            else:
                with (self._folder / name).open("a", encoding="utf-8") as file:
                    file.write(text)
        self._written = len(history)

    def on_run_end(self) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            return
        for name in (METRICS, CLIENTS):
            rows = [json.loads(line) for line in (self._folder / name).read_text(encoding="utf-8").splitlines()]
            columns = sorted({key for row in rows for key in row}, key=lambda key: (key != "round", key))
            table = pyarrow.table({key: [row.get(key) for row in rows] for key in columns})
            parquet.write_table(table, (self._folder / name).with_suffix(".parquet"))
