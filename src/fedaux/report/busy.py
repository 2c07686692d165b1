"""One line while a command is busy: a spinner in a terminal; elsewhere a line, and only
if it takes a while.

It is there before anything heavy is imported, and imports nothing heavy itself until it
is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from fedaux.core.progress import ProgressEvent

# Seconds, where there is no terminal.
FIRST_LINE_AFTER = 2.0  # before the first line
LINE_INTERVAL = 10.0  # between two


@contextmanager
def busy(console: Console, task: str) -> Iterator[None]:
    """`with busy(console, "writing the report"): …`; work inside that counts its steps
    shows them.
    """
    start = time.monotonic()
    words = task
    over = threading.Event()

    def print_lines() -> None:
        wait = None if console.is_terminal else FIRST_LINE_AFTER
        while not over.wait(wait):
            passed = f"{time.monotonic() - start:.0f} s so far"
            line = f"{words}, {passed}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
            wait = LINE_INTERVAL

    # nothing where there is no terminal
    with console.status(f"{task} …", spinner_style="dim") as status:
        from fedaux.core.progress import report_to
        from fedaux.report.progress import describe

        def on_progress(event: ProgressEvent) -> None:
            nonlocal words
            words = f"{task}: {describe(event)}"
            status.update(f"{words}, {time.monotonic() - start:.0f} s")

        lines = threading.Thread(target=print_lines, daemon=True)
        lines.start()
        try:
            with report_to(on_progress):
                yield
        finally:
            over.set()
            lines.join()
