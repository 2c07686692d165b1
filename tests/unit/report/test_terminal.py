"""Words, bars and tables."""

import io

import pytest
from rich.console import Console

from fedaux.report.terminal import format_bytes, format_seconds, results_table, sparkline


def console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def said(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def test_results_table() -> None:
    on = console()
    on.print(results_table("Accuracy", ("method", "last"), [("FedAVG", "30.0"), ("FedAUX", "80.0")]))
    for word in ("Accuracy", "method", "last", "FedAVG", "30.0", "FedAUX", "80.0"):
        assert word in said(on)


@pytest.mark.parametrize(
    ("values", "bars"), [([], ""), ([0.0, 1.0], "▁█"), ([0.124, 0.126, 0.99, 1.0], "▁▂██"), ([0.5], "▅")]
)
def test_sparkline(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (200, "3:20"), (7500, "2:05:00")])
def test_duration(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words


@pytest.mark.parametrize(("count", "words"), [(840_000, "840 kB"), (12_345_678, "12.3 MB"), (4.56e9, "4.56 GB")])
def test_megabytes(count: float, words: str) -> None:
    assert format_bytes(count) == words
