"""Words, bars and tables."""

import io

import pytest
from rich.console import Console

from fedaux.report.terminal import (
    format_bytes,
    format_seconds,
    results_table,
    sparkline,
)


def test_the_best_is_bold_whatever_its_name() -> None:
    file = io.StringIO()
    rows, best = [("FedAvg", "80.0"), ("FedAUX", "30.0")], [[True], [False]]
    table = results_table("Accuracy", ("method", "last"), rows, best=best)
    Console(file=file, force_terminal=True, width=120, no_color=True).print(table)
    assert all(
        word in file.getvalue()
        for word in ("Accuracy", "method", "last", "FedAvg", "30.0", "FedAUX")
    )
    assert "\x1b[1m80.0\x1b[0m" in file.getvalue()
    assert "\x1b[1m30.0" not in file.getvalue()
    assert "\x1b[1mFedAUX" not in file.getvalue()


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([0.0, 1.0], "▁█"), ([0.124, 0.126, 0.99, 1.0], "▁▂██"), ([0.5], "▅")],
)
def test_sparkline(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.4, "59 s"), (200, "3:20"), (7500, "2:05:00")],
)
def test_duration(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(840_000, "840 kB"), (12_345_678, "12.3 MB"), (4.56e9, "4.56 GB")],
)
def test_megabytes(count: float, words: str) -> None:
    assert format_bytes(count) == words
