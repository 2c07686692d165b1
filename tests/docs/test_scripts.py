"""Benchmarks, studies and picture scripts import what there is; the picture of the
rooms is up to date.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path
    for folder in ("benchmarks", "studies", "docs")
    for path in ROOT.glob(f"{folder}/*.py")
)


@pytest.fixture(autouse=True)
def _beside_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script of docs/ imports `drawing` from its folder."""
    monkeypatch.syspath_prepend(ROOT / "docs")


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


PHONE = 358  # pixels that a picture has on a screen of 390


@pytest.mark.parametrize("name", ["phases", "release", "round"])
def test_the_pictures_of_phases_can_be_read_on_a_phone(name: str) -> None:
    """They are those of their script, and no text is below 14 pixels."""
    pictures = imported(ROOT / "docs" / "phase_pictures.py")
    drawn = (pictures.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn == pictures.PICTURES[name](), "run `python docs/phase_pictures.py`"
    (width,) = re.findall(r'^<svg .*?width="(\d+)"', drawn)
    used = set(re.findall(r'class="(h|s|e)\b', drawn))
    sizes = dict(re.findall(r"\.(h|s|e) \{ font-size: (\d+)px", drawn))
    (plain,) = re.findall(r"text \{ fill: #fff; font-size: (\d+)px", drawn)
    smallest = min(int(size) for size in [plain, *(sizes[kind] for kind in used)])
    assert smallest * PHONE / int(width) >= 14


def test_links_of_the_changelog_start_in_the_folder_of_its_page() -> None:
    """Nine of them led nowhere on the site."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri="changelog.md"))
    text = imported(ROOT / "docs" / "changelog.py").on_page_markdown("", page)
    links = re.findall(r"\]\(([^)#]+)", text)
    local = [link for link in links if "://" not in link]
    assert local
    assert [link for link in local if not (ROOT / "docs" / link).exists()] == []
