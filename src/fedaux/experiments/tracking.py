"""Figures of a run as it goes: always as JSON lines in its folder, and wherever else somebody wants to see them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from fedaux.algorithms.run_state import RunState
from fedaux.config.schema import Config
from fedaux.core.errors import MissingPackageError, unknown_name
from fedaux.core.io import write_atomically
from fedaux.core.results import RoundResult

METRICS, CLIENTS = "metrics.jsonl", "clients.jsonl"
Row = dict[str, Any]


class Tracker(Protocol):
    """Whoever wants to know. A run that goes on after a stop starts again, with the state it goes on from."""

    def start(self, config: Config, folder: Path, state: RunState | None) -> None: ...

    def saved(self, state: RunState) -> None:
        """After preparation (round 0), when releases are in, and after every round."""

    def end(self) -> None:
        """Also of a run that was stopped or has failed."""


def metrics(state: RunState) -> list[Row]:
    """One flat row of numbers per round; what does not exist, such as teachers of FedAVG, is left out."""
    return [round_metrics(result) for result in state.history]


def round_metrics(result: RoundResult) -> Row:
    row = {
        "round": result.round,
        "accuracy": result.mean_accuracy,
        **(_named("accuracy", result.accuracy) if len(result.accuracy) > 1 else {}),
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


class JsonLines:
    """`metrics.jsonl` and `clients.jsonl`, and at the end the same as Parquet where pyarrow is installed."""

    def start(self, config: Config, folder: Path, state: RunState | None) -> None:
        """Lines of rounds that the state does not know, from a process that was killed, are dropped."""
        self._folder, self._round = folder, state.round if state else 0
        history = state.history if state else ()
        rows = {METRICS: metrics(state) if state else [], CLIENTS: [row for one in history for row in client_rows(one)]}
        for name, lines in rows.items():
            write_atomically(folder / name, "".join(map(_line, lines)).encode())

    def saved(self, state: RunState) -> None:
        if state.round == self._round:
            return
        self._round, last = state.round, state.history[-1]
        for name, lines in ((METRICS, [round_metrics(last)]), (CLIENTS, client_rows(last))):
            with (self._folder / name).open("a", encoding="utf-8") as file:
                file.writelines(map(_line, lines))

    def end(self) -> None:
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


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def make_trackers(names: Iterable[str]) -> list[Tracker]:
    """By name, as `fedaux run --track NAME` has them."""
    from fedaux.experiments.trackers import TRACKERS

    made: list[Tracker] = []
    for name in names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
        try:
            made.append(TRACKERS[name]())
        except ImportError as error:
            raise MissingPackageError(f"--track {name} needs {name}: pip install 'fedaux[{name}]'") from error
    return made
