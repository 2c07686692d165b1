"""Benchmarks, studies and scripts of the site import what there is."""

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


def test_links_of_the_changelog_start_in_the_folder_of_its_page() -> None:
    """Nine of them led nowhere on the site."""
    page = SimpleNamespace(file=SimpleNamespace(src_uri="changelog.md"))
    text = imported(ROOT / "docs" / "changelog.py").on_page_markdown("", page)
    links = re.findall(r"\]\(([^)#]+)", text)
    local = [link for link in links if "://" not in link]
    assert local
    assert [link for link in local if not (ROOT / "docs" / link).exists()] == []
