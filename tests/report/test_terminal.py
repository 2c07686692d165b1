"""Bars where there is a terminal, lines where there is none."""

import io

import pytest
from rich.console import Console

from fedaux.report.terminal import Live, results_table, sparkline


def console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def said(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def test_plain_lines_without_a_terminal() -> None:
    on = console()
    with Live(on) as live:
        live.tell("pretrain cnn(width=4)", 1, 3, "loss 2.000")
        live.tell("pretrain cnn(width=4)", 2, 3, "loss 1.500")  # too soon to say again
        live.tell("pretrain cnn(width=4)", 3, 3, "loss 1.000")  # the last is always said
        live.tell("round 1", 5, 5, "training")  # the method's own line follows each round
        live.tell("FedAUX", 1, 1, "accuracy 0.500")
    assert said(on).splitlines() == [
        "pretrain cnn(width=4): 1/3 loss 2.000",
        "pretrain cnn(width=4): 3/3 loss 1.000",
        "FedAUX: 1/1 accuracy 0.500",
    ]


def test_a_line_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 9.0, 10.0])
    monkeypatch.setattr("fedaux.report.terminal.time.monotonic", lambda: next(now))
    on = console()
    live = Live(on)
    for done in (1, 2, 3):
        live.tell("FedAVG", done, 9, "x")
    assert said(on).splitlines() == ["FedAVG: 1/9 x", "FedAVG: 3/9 x"]


def test_bars_in_a_terminal() -> None:
    on = console(terminal=True)
    with Live(on) as live:
        live.tell("FedAUX", 0, 2, "prepared")
        for done in (1, 2):
            live.tell("round 1", done, 2, "training")
        live.tell("FedAUX", 1, 2, "accuracy 0.123")
        assert list(live.bars) == ["FedAUX"]  # the round's own bar is gone
        (task,) = live.progress.tasks
        assert (task.description, task.completed, task.total, task.fields["note"]) == ("FedAUX", 1, 2, "accuracy 0.123")
    assert "accuracy 0.123" in said(on)


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
