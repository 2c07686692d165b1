"""`fedaux look`: what it prints for people and for scripts, in a simulation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.commands import fedaux, paragraph

SETTINGS = """
prototypes = ["linear"]
[data]
clients = 3
alpha = 10.0
[privacy]
look_epsilon = 2.0
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "digits.toml"
    path.write_text(SETTINGS)
    return path


def test_a_dry_run_says_how_wide_the_intervals_will_be(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("look", config, "--dry-run")
    assert fedaux(monkeypatch, *words) == 0
    apart = paragraph(capsys.readouterr().out)
    assert "at 0 columns and the classes costs each of 3 sites ε = 2" in apart
    assert "each with noise of its own" in apart
    widths = []
    for secure in ("false", "true"):
        setting = ("--set", f"federation.secure={secure}", "--json")
        setting += ("--set", "method=ridge")
        assert fedaux(monkeypatch, *words, *setting) == 0
        widths.append(json.loads(capsys.readouterr().out)["half_width"])
    # three sites add their own noise, or half of it: two of them must be honest
    assert widths[0] == pytest.approx(2**0.5 * widths[1])


def test_a_look_at_images_counts_their_classes(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = config.parent / "seen"
    assert fedaux(monkeypatch, "look", config, "--out", out, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts["classes"]) == 10
    assert facts["columns"] == {}
    # 1,797 digits, without a fifth for tests and half of the others as public data
    assert abs(facts["records"]["value"] - 719) < 60
    assert Path(facts["report"]).is_file()
    assert "schema" not in facts
    # once more: it is there, and people read it
    assert fedaux(monkeypatch, "look", config, "--out", out) == 0
    words = capsys.readouterr().out
    assert "another or no class" in words
    assert "Columns" not in words


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("privacy.look_epsilon=0", "lets no site be asked"),
        ('data.look_columns=["age"]', "There is: none, as the data are no table"),
    ],
)
def test_what_cannot_be_counted_is_said(
    setting: str,
    message: str,
    config: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fedaux(monkeypatch, "look", config, "--set", setting, "--dry-run") == 3
    assert message in paragraph(capsys.readouterr().err)
