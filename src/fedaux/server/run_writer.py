"""Writes the state of a run into the files of its folder, which `RunState.load`
reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from fedaux.core.arrays import Arrays, ArrayTree
from fedaux.core.io import write_atomically, write_from
from fedaux.messages import Release
from fedaux.server.run_state import (
    ACCOUNTS,
    GROWING,
    HISTORY,
    RELEASES,
    START,
    STATE_FILE,
    RunState,
    StateRow,
    pack,
    read,
    release_row,
)


class RunWriter:
    """Writes the state of a run; continues from `saved`, the state in the folder, or
    else replaces its contents.

    Files of lines are appended to and on disk before `STATE_FILE` is replaced, which
    commits their lengths. A process that is killed in between leaves the previous
    state, and its lines are overwritten when the run continues.
    """

    def __init__(self, folder: Path, saved: RunState | None = None) -> None:
        self._folder = folder
        self._started = False
        self._fresh = saved is None  # nothing in the folder counts
        # how much of each file is committed
        self._rounds = 0
        self._releases = 0
        self._lengths = dict.fromkeys(GROWING, 0)
        if saved is not None:
            self._rounds = len(saved.history)
            self._releases = len(_kept_releases(saved))
            commit, _ = read(folder / STATE_FILE)
            self._lengths = commit["lengths"]

    def save(self, state: RunState) -> None:
        """Save the state, after preparation, new releases and every round. Only the
        rows that are new are appended.
        """
        if not self._started:
            self._start(state)
        releases = _kept_releases(state)
        rows = {
            HISTORY: self._new_results(state),
            RELEASES: self._new_releases(releases),
            ACCOUNTS: self._changed_clients(state),
        }
        lengths = {name: self._append(name, new) for name, new in rows.items()}
        # this commits the lines above
        commit: StateRow = {"round": state.round, "lengths": lengths}
        if state.site_test is not None:
            commit["site_test"] = state.site_test.to_dict()
        write_atomically(self._folder / STATE_FILE, pack(commit, _current(state)))
        self._rounds = len(state.history)
        self._releases = len(releases)
        self._lengths = lengths
        self._fresh = False

    def _new_results(self, state: RunState) -> Iterator[StateRow]:
        for result in state.history[self._rounds :]:
            yield result.to_dict()

    def _new_releases(self, releases: dict[str, Release]) -> Iterator[StateRow]:
        # from the end: a run of many clients has few new ones
        count = len(releases) - self._releases
        latest = list(islice(reversed(releases.values()), count))
        yield from map(release_row, reversed(latest))

    def _changed_clients(self, state: RunState) -> Iterator[StateRow]:
        names = state.clients if self._fresh else state.selected
        for name in sorted(names):
            yield state.client(name).to_row(name)

    def _start(self, state: RunState) -> None:
        """Write the start of a run, also of a resumed one: it may have more rounds, and
        drops uncommitted lines.
        """
        if self._fresh:
            (self._folder / STATE_FILE).unlink(missing_ok=True)
        rooms = {
            "extractors": state.extractors,
            "public": state.public,
            "standardisation": state.standardisation,
        }
        settings = {
            "config": state.config.to_dict(),
            "assignment": state.assignment,
            "run": state.run or state.config.run_id,
        }
        write_atomically(self._folder / START, pack(settings, rooms))
        for name, length in self._lengths.items():
            write_from(self._folder / name, length, b"")
        self._started = True

    def _append(self, name: str, rows: Iterable[StateRow]) -> int:
        """Append rows to a file, and return its new length."""
        lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in rows]
        data = "".join(lines).encode()
        length = int(self._lengths[name])
        if data:
            write_from(self._folder / name, length, data)
        return length + len(data)


def _current(state: RunState) -> ArrayTree:
    """Return the arrays that every round replaces."""
    confusion: dict[str, Arrays] = {}
    if state.history:
        last = state.history[-1]
        tables = last.confusion or {}
        confusion = {
            label: {"counts": np.array(table)} for label, table in tables.items()
        }
        for label, rows in (last.calibration or {}).items():
            confusion.setdefault(label, {})["calibration"] = np.array(rows)
    return {
        "weights": state.weights,
        "method_state": state.method_state,
        "confusion": confusion,
        "sums": state.sums,
    }


def _kept_releases(state: RunState) -> dict[str, Release]:
    """Return everything in the file of releases: a run has those of clients, or secure
    sums of them.
    """
    return state.pooled or state.releases
