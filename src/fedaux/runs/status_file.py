"""The file of a run that says what it is doing now, written while it goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from fedaux.config.schema import Config
from fedaux.core.io import write_atomically
from fedaux.core.progress import ProgressEvent, RoundFinished
from fedaux.core.results import RoundResult
from fedaux.runs.run_status import FILE, RunStatus, outcome_of

if TYPE_CHECKING:
    from fedaux.server.run_state import RunState  # with PyTorch, which whoever reads the file does not need

EVERY = 1.0  # seconds between two writes of the file
BEAT = 10.0  # seconds after which it is at least touched
STALE = 60.0  # seconds without that, after which its writer is taken for dead


class StatusFile:
    """Keeps the file up to date while a run goes on: `with StatusFile(folder, config) as status`.

    `shown` are the clients that it is about, each with the name under which it is counted: its own at a regional
    server, its region's at the server that merges them. None: all clients, by their own names.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        shown: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._shown, self._clock = folder / FILE, shown, clock
        self._status = RunStatus.start(config, RunStatus.load(folder), clock(), shown and shown.values())
        self._lock, self._changed, self._end = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_on, daemon=True)

    def __enter__(self) -> StatusFile:
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._status.end(*outcome_of(error), self._clock())
        self._end.set()
        self._changed.set()
        self._thread.join()
        self._write()

    def restore(self, state: RunState | None) -> None:
        if state is not None:
            history, accounts = state.history, state.accounts
            if self._shown is not None:  # bytes of before are those of all clients
                history = tuple(replace(_shown(one, self._shown), bytes_sent=0, bytes_received=0) for one in history)
                ordered = sorted(accounts.items(), key=lambda item: item[1].epsilon)  # of a region, the largest
                accounts = {self._shown[client]: spent for client, spent in ordered if client in self._shown}
            with self._lock:
                self._status.restore(history, accounts)

    def on_progress(self, event: ProgressEvent) -> None:
        if self._shown is not None and isinstance(event, RoundFinished):
            event = replace(event, result=_shown(event.result, self._shown))
        with self._lock:
            self._status.update(event, self._clock())
        self._changed.set()

    def _write_on(self) -> None:
        """In a thread of its own: a disk that is slow holds nothing up, and events may come by the hundred."""
        while not self._end.is_set():
            if self._changed.wait(BEAT):
                self._changed.clear()
                self._write()
            else:
                with suppress(OSError):
                    os.utime(self._path)
            self._end.wait(EVERY)

    def _write(self) -> None:
        with self._lock:
            text = self._status.to_json()
        with suppress(OSError):  # a full disk ends the run where it matters
            write_atomically(self._path, text.encode())


def _shown(result: RoundResult, shown: Mapping[str, str]) -> RoundResult:
    metrics = {shown[client]: found for client, found in result.client_metrics.items() if client in shown}
    failures = tuple(one.under(shown[one.client]) for one in result.failures if one.client in shown)
    return replace(result, client_metrics=metrics, failures=failures)


def is_alive(folder: Path, now: float) -> bool:
    """Whether the file's writer has lately shown a sign of life."""
    try:
        return now - (folder / FILE).stat().st_mtime < STALE
    except OSError:
        return False
