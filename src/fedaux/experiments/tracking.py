"""Figures of a run as it goes: always as JSON lines in its folder, and wherever else somebody wants to see them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from fedaux.algorithms.results import mean_accuracy
from fedaux.algorithms.run_state import Record, RunState
from fedaux.config.schema import Config
from fedaux.core.errors import MissingPackageError, unknown_name
from fedaux.core.io import write_atomically
from fedaux.privacy.accounting import round_up

METRICS, CLIENTS = "metrics.jsonl", "clients.jsonl"
Row = dict[str, Any]


class Tracker(Protocol):
    """Whoever wants to know. A run that goes on after a stop starts again, with the state it goes on from."""

    def start(self, config: Config, folder: Path, state: RunState | None) -> None: ...

    def saved(self, state: RunState) -> None:
        """After preparation (round 0), when releases are in, and after every round."""

    def end(self) -> None:
        """Also of a run that was stopped or has failed."""


def in_words(state: RunState) -> str:
    """Where a run stands, for a log."""
    if not state.history:
        return f"{len(state.releases)} releases" if state.releases else "prepared"
    last = state.history[-1]
    words = [f"accuracy {mean_accuracy(last):.3f}", f"{last['clients']} clients"]
    words += [f"{len(last['failures'])} failed"] if last["failures"] else []
    words += [f"{last['teachers']:.1f} teachers count"] if last["teachers"] else []
    words += [f"ε {round_up(last['epsilon'])}"] if last["epsilon"] else []
    return ", ".join(words)


def metrics(state: RunState) -> list[Row]:
    """One flat row of numbers per round; what does not exist, such as teachers of FedAVG, is left out."""
    return [round_metrics(record) for record in state.history]


def round_metrics(record: Record) -> Row:
    row = {
        "round": record["round"],
        "accuracy": mean_accuracy(record),
        **(_named("accuracy", record["accuracy"]) if len(record["accuracy"]) > 1 else {}),
        "local_loss": record["local_loss"],
        "distill_loss": record["distill_loss"],
        "teachers": record["teachers"],
        "loudest": record["loudest"][1] if record["loudest"] else None,
        "clients": record["clients"],
        "failed": len(record["failures"]),
        "epsilon": record["epsilon"],
        "bytes_sent": record["bytes"]["sent"],
        "bytes_received": record["bytes"]["received"],
        "seconds": sum(record["seconds"].values()),
        **_named("seconds", record["seconds"]),
    }
    return {key: value for key, value in row.items() if value is not None}


def client_rows(record: Record) -> list[Row]:
    """One row for each client asked in a round: what it did, or why it failed."""
    done = [{"round": record["round"], "client": name, **facts} for name, facts in record["each"].items()]
    failed = [{"round": record["round"], "client": name, "failure": reason} for name, reason in record["failures"]]
    return done + failed


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
        self._round, record = state.round, state.history[-1]
        for name, lines in ((METRICS, [round_metrics(record)]), (CLIENTS, client_rows(record))):
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
