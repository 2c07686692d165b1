"""One line while a command is busy: a spinner in a terminal; elsewhere a line, and only if it takes a while.

It is there before anything heavy is imported, and imports nothing heavy itself until it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from fedaux.core.progress import ProgressEvent

PATIENCE, EVERY = 2.0, 10.0  # seconds before the first line and between two, where there is no terminal


@contextmanager
def busy(console: Console, task: str) -> Iterator[None]:
    """`with busy(console, "writing the report"): …`; work inside that counts its steps shows them."""
    start = time.monotonic()
    if console.is_terminal:
        with (
            console.status(f"{task} …", spinner_style="dim") as status,
            _heard(lambda words: status.update(f"{task}: {words}, {time.monotonic() - start:.0f} s")),
        ):
            yield
        return
    last, ended = [""], threading.Event()
    lines = threading.Thread(target=_lines, args=(console, task, last, ended), daemon=True)
    lines.start()
    try:
        with _heard(lambda words: last.__setitem__(0, f": {words}")):
            yield
    finally:
        ended.set()
        lines.join()


@contextmanager
def _heard(show: Callable[[str], None]) -> Iterator[None]:
    from fedaux.core.work import listening
    from fedaux.report.progress import describe

    def on_progress(event: ProgressEvent) -> None:
        show(describe(event))

    with listening(on_progress):
        yield


def _lines(console: Console, task: str, last: list[str], ended: threading.Event) -> None:
    start, wait = time.monotonic(), PATIENCE
    while not ended.wait(wait):
        passed = f"{time.monotonic() - start:.0f} s so far"
        console.print(f"{task}{last[0]}, {passed}", highlight=False, markup=False, soft_wrap=True)
        wait = EVERY
