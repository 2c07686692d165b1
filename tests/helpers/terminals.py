"""Consoles that write into memory, and what a panel shows."""

import io

from rich.console import Console

from fedaux.report.live import Live


def console(terminal: bool = False, width: int = 120) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=terminal, width=width, color_system=None
    )


def printed(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def shown(live: Live, width: int = 120) -> str:
    on = console(width=width)
    on.print(live.render())
    return printed(on)
