"""`fedaux run --dry-run`."""

import json
from pathlib import Path

import pytest

from helpers.commands import fedaux


def test_a_dry_run_prints_a_plan_and_runs_nothing(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "run", config, "--dry-run") == 0
    said = capsys.readouterr().out
    for words in (
        "Found",
        "private",
        "parameters",
        "About how long",
        "Nothing was trained",
    ):
        assert words in said
    assert fedaux(monkeypatch, "run", config, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []
    assert not Path("runs").exists()
