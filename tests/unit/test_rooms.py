"""The rooms of the package: who may import whom, what is imported where, and that all
of it is declared.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "fedaux"
# what users start from: copied, never imported
TEMPLATES = PACKAGE / "config" / "templates"

ROOMS = (  # from the top floor down: a room imports only from below
    "cli",
    "deploy",
    "audit",
    "sweeps",
    "runs",
    "report",
    "export",
    "flower",
    "server",
    "client",
    "methods",
    "scoring",
    "privacy",
    "models",
    "data",
    "config",
    "messages",
    "core",
)
SOURCES = [
    path for path in sorted(PACKAGE.rglob("*.py")) if TEMPLATES not in path.parents
]


def imports(source: str) -> Iterator[str]:
    """Every module that a source imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute"
            yield node.module


def rooms_of(source: str) -> set[str]:
    return {
        module.split(".")[1]
        for module in imports(source)
        if module.startswith("fedaux.")
    }


def upward(room: str, source: str) -> set[str]:
    """The rooms above `room` that a source of it imports."""
    return {
        other for other in rooms_of(source) if ROOMS.index(other) < ROOMS.index(room)
    }


def test_every_entry_of_the_package_is_a_room() -> None:
    entries = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert entries == {*ROOMS, "__init__.py", "__main__.py", "py.typed"}


@pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_imports_run_downwards(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    if room not in ("__init__.py", "__main__.py"):
        assert upward(room, path.read_text(encoding="utf-8")) == set()


def test_an_import_upwards_would_be_found() -> None:
    assert upward("privacy", "from fedaux.scoring.base import Scorer") == {"scoring"}
    assert upward("core", "def late():\n    import fedaux.cli") == {"cli"}
    assert upward("cli", "from fedaux.core.io import cache_folder") == set()


def test_client_and_server_know_nothing_of_each_other() -> None:
    """They meet in messages."""
    for room, other in (("client", "server"), ("server", "client")):
        users = [
            path.name
            for path in (PACKAGE / room).glob("*.py")
            if other in rooms_of(path.read_text("utf-8"))
        ]
        assert users == []


def test_flower_is_imported_where_its_messages_are_handled() -> None:
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in SOURCES
        if any(
            module.split(".")[0] == "flwr"
            for module in imports(path.read_text(encoding="utf-8"))
        )
    }
    assert users == {"flower", "deploy", "audit"}


def test_every_imported_package_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    extras = [
        text
        for name, texts in project["optional-dependencies"].items()
        if name != "dev"
        for text in texts
    ]
    declared = {
        canonicalize_name(Requirement(text).name)
        for text in project["dependencies"] + extras
    }
    imported = {
        module.split(".")[0]
        for path in SOURCES
        for module in imports(path.read_text(encoding="utf-8"))
    }
    homes = packages_distributions()
    foreign = imported - set(sys.stdlib_module_names) - {"fedaux"}
    undeclared = {
        name
        for name in foreign
        if not {canonicalize_name(home) for home in homes[name]} & declared
    }
    assert foreign >= {"torch", "flwr", "cryptography"}
    assert undeclared == set()
