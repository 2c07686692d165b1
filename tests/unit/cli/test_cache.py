"""`fedaux cache list | clean`."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaux.core.io import caching_in
from fedaux.data.images import image_folder
from helpers.commands import fedaux


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Decoded images, as a run leaves them."""
    for name in ("a", "b"):
        (tmp_path / "scans" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(
            tmp_path / "scans" / name / "1.png"
        )
    with caching_in(tmp_path / "cache"):
        image_folder(tmp_path / "scans")
    return tmp_path / "cache"


def test_decoded_images_are_listed_and_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "cache", "list", "--folder", folder, "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert (entry["kind"], entry["private"]) == ("decoded images", True)
    assert "scans" in entry["source"]
    assert fedaux(monkeypatch, "cache", "list", "--folder", folder) == 0
    assert "decoded images" in capsys.readouterr().out
    assert (
        fedaux(
            monkeypatch, "cache", "clean", "--folder", folder, "--unused", "30", "--yes"
        )
        == 0
    )
    assert "Deleted 0 entries" in capsys.readouterr().out
    assert (
        fedaux(monkeypatch, "cache", "clean", "--folder", folder, "--private", "--yes")
        == 0
    )
    assert "Deleted 1 entry" in capsys.readouterr().out
    assert list(folder.iterdir()) == []


def test_nothing_is_deleted_without_a_yes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("typer.confirm", lambda *words, **options: False)
    assert fedaux(monkeypatch, "cache", "clean", "--folder", folder) == 1
    assert len(list(folder.iterdir())) == 1
