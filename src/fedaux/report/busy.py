"""One line while a command is busy: a spinner in a terminal; elsewhere a line, and only if it takes a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from fedaux.core.progress import ProgressEvent
from fedaux.core.work import listening
from fedaux.report.progress import describe
from fedaux.report.terminal import format_seconds

PATIENCE, EVERY = 2.0, 10.0  # seconds before the first line and between two, where there is no terminal


@contextmanager
def busy(console: Console, task: str) -> Iterator[None]:
    """`with busy(console, "writing the report"): …`; work inside that counts its steps shows them."""
    if console.is_terminal:
        start = time.monotonic()
        with console.status(f"{task} …", spinner_style="dim") as status:

            def show(event: ProgressEvent) -> None:
                status.update(f"{task}: {describe(event)}, {format_seconds(time.monotonic() - start)}")

            with listening(show):
                yield
        return
    last = [""]
    ended = threading.Event()
    lines = threading.Thread(target=_lines, args=(console, task, last, ended), daemon=True)
    lines.start()

    def note(event: ProgressEvent) -> None:
        last[0] = f": {describe(event)}"

    try:
        with listening(note):
            yield
    finally:
        ended.set()
        lines.join()


def _lines(console: Console, task: str, last: list[str], ended: threading.Event) -> None:
    start, wait = time.monotonic(), PATIENCE
    while not ended.wait(wait):
        passed = format_seconds(time.monotonic() - start)
        console.print(f"{task}{last[0]}, {passed} so far", highlight=False, markup=False, soft_wrap=True)
        wait = EVERY
