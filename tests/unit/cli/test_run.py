"""`fedaux run`, `resume` and `report` where nothing has to be trained."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.server.run_state import STATE_FILE
from helpers.commands import fedaux
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


def test_a_finished_run_is_read_and_not_repeated(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = finished_run(place / "out")
    before = (place / "out" / STATE_FILE).read_bytes()
    assert fedaux(monkeypatch, "resume", "out", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["curve"] == result.curve
    assert (place / "out" / STATE_FILE).read_bytes() == before


def test_a_report_is_written_where_it_is_said_to_be(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("fedavg", "feddf"):
        finished_run(place / "runs" / method, replace(TINY_CONFIG, method=method))
    for words, where in (
        (("runs/fedavg",), "runs/fedavg"),
        (("runs",), "runs"),
        (("runs", "--out", "both"), "both"),
    ):
        assert fedaux(monkeypatch, "report", *words) == 0
        assert f"Report: {where}/report.html" in capsys.readouterr().out
        assert (place / where / "report.html").is_file()


def test_an_interrupt_says_how_to_go_on(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (config.parent / "interrupting.py").write_text(
        "def source(**_):\n    raise KeyboardInterrupt\n"
    )
    monkeypatch.syspath_prepend(config.parent)
    words = [
        "run",
        config,
        "--out",
        config.parent / "out",
        "--set",
        "data.source=interrupting:source",
    ]
    assert fedaux(monkeypatch, *words) == 130
    assert (
        "Stopped before the first round. The same command starts again"
        in capsys.readouterr().err
    )
