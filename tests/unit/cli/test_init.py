"""`fedaux init`: what it writes, and what it says to do next."""

import json
from pathlib import Path

import pytest

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.models import published
from helpers.commands import fedaux
from helpers.pictures import pictures, save_png


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


@pytest.mark.parametrize(
    ("words", "there", "expected"),
    [((), True, "efficientnet-lite0"), (("--pretrain",), True, "cnn"), ((), False, "cnn")],
)
def test_photos_get_a_published_encoder_where_one_is_installed(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], there: bool, expected: str
) -> None:
    for index, image in enumerate(pictures(12, 32)):
        folder = "public" if index > 7 else ("photos/cat" if index % 2 else "photos/dog")
        save_png(place / folder / f"{index}.png", image)
    monkeypatch.setattr(published.Publication, "folder", lambda self: place if there else None)
    assert fedaux(monkeypatch, "init", "images", "--data", "photos", "--public", "public", *words) == 0
    config = Config.load(place / "images.toml")
    assert config.prototypes == (PrototypeSpec(expected),)
    assert (config.pretrain.epochs == 0) == (expected == "efficientnet-lite0")
