"""Long work says how far it is, from wherever it is done, to whoever listens.

    for file in track(files, "reading images"): …

Readers of files and training loops lie far below the commands, and would otherwise hand a callback through every room.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from fedaux.core.progress import OnProgress, WorkProgress, no_progress

Item = TypeVar("Item")
_EVERY = 0.2  # seconds between two reports of the same work
_listener: ContextVar[OnProgress] = ContextVar("listener", default=no_progress)


@contextmanager
def listening(on_progress: OnProgress) -> Iterator[None]:
    """Who hears of the work inside; `no_progress` leaves that to whoever listens outside."""
    token = _listener.set(_listener.get() if on_progress is no_progress else on_progress)
    try:
        yield
    finally:
        _listener.reset(token)


class Work:
    """So many steps of one task, reported when it begins, a few times a second, and when it ends."""

    def __init__(self, task: str, total: int, done: int = 0) -> None:
        self.task, self.total, self.done = task, total, done
        self._report()

    def step(self, count: int = 1) -> None:
        self.done += count
        if self.done >= self.total or time.monotonic() - self._last >= _EVERY:
            self._report()

    def _report(self) -> None:
        self._last = time.monotonic()
        _listener.get()(WorkProgress(self.task, min(self.done, self.total), self.total))


def track(items: Sequence[Item], task: str) -> Iterator[Item]:
    """The items, one by one, as a task."""
    work = Work(task, len(items))
    for item in items:
        yield item
        work.step()
