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


def test_a_promise_that_says_nothing_is_a_warning_before_the_run(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ε = 1000 was planned without a word."""
    words = ("--set", "privacy.epsilon=1000", "--set", "privacy.delta=0.5")
    assert fedaux(monkeypatch, "run", config, "--dry-run", *words) == 0
    said = capsys.readouterr().out
    assert "Warning: ε = 1000 promises next to nothing" in said
    assert "Warning: δ = 0.5 promises next to nothing" in said
    assert fedaux(monkeypatch, "run", config, "--dry-run", *words, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["warnings"]) == 2
