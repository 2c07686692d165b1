"""Benchmarks, studies and picture scripts import what there is; the picture of the
rooms is up to date.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path
    for folder in ("benchmarks", "studies", "docs")
    for path in ROOT.glob(f"{folder}/*.py")
)


def imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    # dataclasses look their module up
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_imports_what_there_is(path: Path) -> None:
    assert imported(path).__doc__ or path.name == "__init__.py"


def test_the_picture_of_the_rooms_shows_the_imports() -> None:
    picture = imported(ROOT / "docs" / "rooms_picture.py")
    drawn = (ROOT / "docs" / "images" / "rooms.svg").read_text(encoding="utf-8")
    assert drawn == picture.draw(), "run `python docs/rooms_picture.py`"
    assert set(picture.PURPOSES) == {
        path.parent.name for path in picture.PACKAGE.glob("*/__init__.py")
    }


@pytest.mark.parametrize("name", ["public-data", "sight", "topology"])
def test_the_pictures_are_those_of_their_script(name: str) -> None:
    pictures = imported(ROOT / "docs" / "pictures.py")
    drawn = (pictures.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == getattr(pictures, name.replace("-", "_"))(), (
        "run `python docs/pictures.py`"
    )
