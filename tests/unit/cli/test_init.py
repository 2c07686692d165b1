"""`fedaux init`: what it writes, and what it says to do next."""

import json
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from helpers.commands import fedaux


def test_init_says_what_it_wrote_and_what_to_do_next(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "init", "images", "new") == 0
    assert "fedaux run new/images.toml" in capsys.readouterr().out
    assert Config.load(place / "new" / "images.toml").data.source == "images"
    assert fedaux(monkeypatch, "init", "text", "--json") == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["text.toml"]


@pytest.mark.parametrize("words", [("images", "--data", "scans"), ("text", "--data", "a", "--public", "b")])
def test_folders_to_choose_from_come_in_pairs_and_with_images(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert fedaux(monkeypatch, "init", *words) == 2
    assert "go together" in capsys.readouterr().err
    assert not (place / f"{words[0]}.toml").exists()
