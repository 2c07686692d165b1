"""The command's own words: what it is told, and what it refuses before anything runs."""

from pathlib import Path

import pytest

from fedaux.core.errors import Exit
from helpers.commands import fedaux, paragraph
from helpers.tiny import TINY_TOML


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["--methods", "fedavg,fedvag"], "did you mean 'fedavg'?"),
        (["--set", "tune.local.lrr=[1]"], "did you mean 'local.lr'?"),
        (["--set", "tune.budget=0"], "the budget must be at least 1"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    fragment: str,
) -> None:
    (tmp_path / "my.toml").write_text(TINY_TOML)
    assert fedaux(monkeypatch, "tune", tmp_path / "my.toml", *words, "--out", tmp_path / "out") == Exit.SETTINGS
    assert fragment in paragraph(capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
