"""Saves a run as it goes. The cost of a save is that of what is new: it does not grow with rounds or clients."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np

from fedaux.core.io import write_atomically, write_from
from fedaux.server.run_state import ACCOUNTS, FILE, HISTORY, RELEASES, START, Row, RunState, pack, read, release_row


class RunWriter:
    """Goes on from `saved`, which the folder holds; without it, whatever the folder holds is replaced.

    Files of lines are appended to and on disk before `FILE` is replaced, which commits their lengths. A process that
    is killed anywhere in between leaves the state before, and its lines are overwritten when the run goes on.
    """

    def __init__(self, folder: Path, saved: RunState | None = None) -> None:
        self._folder, self._started, self._fresh = folder, False, saved is None
        self._rounds, self._releases = (len(saved.history), len(saved.releases)) if saved else (0, 0)
        self._lengths = read(folder / FILE)[0]["lengths"] if saved else dict.fromkeys((HISTORY, RELEASES, ACCOUNTS), 0)

    def save(self, state: RunState) -> None:
        """After preparation, after new releases and after every round: rows of earlier rounds' clients are there."""
        if not self._started:
            self._start(state)
        clients = (
            {*state.accounts, *state.unheard, *state.prepared, *state.last_round, *state.summed}
            if self._fresh
            else state.selected
        )
        arrived = islice(reversed(state.releases.values()), len(state.releases) - self._releases)
        rows: dict[str, Iterable[Row]] = {
            HISTORY: (result.to_dict() for result in state.history[self._rounds :]),
            RELEASES: map(release_row, reversed([*arrived])),
            ACCOUNTS: map(state.client_row, sorted(clients)),
        }
        lengths = {name: self._append(name, new) for name, new in rows.items()}
        tables = (state.history[-1].confusion if state.history else None) or {}
        confusion = {label: {"counts": np.array(table)} for label, table in tables.items()}
        rooms = {
            "weights": state.weights,
            "method_state": state.method_state,
            "confusion": confusion,
            "sums": state.sums,
        }
        write_atomically(self._folder / FILE, pack({"round": state.round, "lengths": lengths}, rooms))
        self._rounds, self._releases = len(state.history), len(state.releases)
        self._lengths, self._fresh = lengths, False

    def _start(self, state: RunState) -> None:
        """Also when a run is resumed: it may have been given more rounds, and lines that were not committed go."""
        if self._fresh:
            (self._folder / FILE).unlink(missing_ok=True)
        rooms = {"extractors": state.extractors, "public": state.public, "standardisation": state.standardisation}
        facts = {
            "config": state.config.to_dict(),
            "dealt": state.dealt,
            "run": state.run or state.config.run_id,
        }
        write_atomically(self._folder / START, pack(facts, rooms))
        for name, length in self._lengths.items():
            write_from(self._folder / name, length, b"")
        self._started = True

    def _append(self, name: str, rows: Iterable[Row]) -> int:
        """The length that the file then has."""
        data = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
        if data:
            write_from(self._folder / name, self._lengths[name], data)
        return int(self._lengths[name]) + len(data)
