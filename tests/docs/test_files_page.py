"""The page of files has what the program writes, and what it says is always there is."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.deploy.layout import Address, write_layout
from fedaux.export.export import export_model
from fedaux.report.run_page import write_run_report
from helpers.runs import tiny_run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "files.md"
HEADING = re.compile(r"^##+ (.+)\n((?:(?!^##).*\n?)*)", flags=re.MULTILINE)
SECTIONS = dict(HEADING.findall(PAGE.read_text(encoding="utf-8")))


def rows(section: str) -> list[tuple[list[str], str]]:
    """(names, when) of each row of a section's table."""
    found = re.findall(
        r"^\| (`.+?) \|.*\| (.*?) \|$", SECTIONS[section], flags=re.MULTILINE
    )
    return [(re.findall(r"`([^`]+)`", names), when) for names, when in found]


def differences(folder: Path, section: str) -> list[str]:
    """Files that the page lacks, and files that it promises and that are not there."""
    written = {path.name for path in folder.iterdir()}
    listed = rows(section)
    patterns = [
        name.rstrip("/").replace("HASH", "*") for names, _ in listed for name in names
    ]
    promised = {
        name.rstrip("/") for names, when in listed if when == "always" for name in names
    }
    unlisted = {
        name
        for name in written
        if not any(fnmatch(name, pattern) for pattern in patterns)
    }
    return sorted(unlisted | (promised - written))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished and exported run."""
    place = tmp_path_factory.mktemp("files")
    finished = tiny_run(place)
    write_run_report(finished.folder)
    export_model(finished.folder)
    return finished.folder


def test_a_run_has_the_files_of_the_page(run: Path) -> None:
    assert differences(run, "A run") == []


def test_a_model_has_the_files_of_the_page(run: Path) -> None:
    (model,) = (run / "model").iterdir()
    assert differences(model, "A model") == []


def test_a_vault_has_the_files_of_the_page(run: Path) -> None:
    vaults = list((run / "clients").iterdir())
    assert len(vaults) == 3
    assert [differences(vault, "A vault") for vault in vaults] == [[]] * 3


def test_a_deployment_has_the_files_of_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "hospitals"
    write_layout(folder, ["berlin", "paris"], Address("127.0.0.1", 8443), Config())
    assert differences(folder, "A deployment") == []
    assert differences(folder / "server", "The server") == []
    assert differences(folder / "sites" / "berlin", "A site") == []


def test_a_difference_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "unheard-of.txt").touch()
    (tmp_path / "card.json").touch()
    assert differences(tmp_path, "A model") == [
        "README.md",
        "model.safetensors",
        "unheard-of.txt",
    ]
