"""How fedaux is installed: from a checkout or a wheel, because no package index has it.

Whoever registers the free name there could send code to everyone who follows a page.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fedaux.core.versions import TESTED_FLOWER

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
READ_BY_USERS = sorted(
    {
        *ROOT.glob("*.md"),
        *(
            path
            for folder in ("src", "docs", "examples", "studies", "charts", "benchmarks")
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        ),
    }
)
APPS = sorted(
    [
        *ROOT.glob("examples/*/pyproject.toml"),
        *ROOT.glob("src/fedaux/*/templates/pyproject.toml"),
    ]
)
_FROM_AN_INDEX = re.compile(
    rb"pip3? install(?: +-[-\w]+| +[\w-]+\.txt)* +['\"]?fedaux(?![\w./-])"
)


def test_nobody_is_told_to_install_from_an_index() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in READ_BY_USERS
        if _FROM_AN_INDEX.search(path.read_bytes())
    ]
    assert found == []


@pytest.mark.parametrize(
    "command",
    [
        "pip install fedaux",
        "pip install fedaux==0.1.0",
        "pip install --upgrade 'fedaux[encoders]'",
        "pip install --constraint constraints.txt -U fedaux",
        'pip install "fedaux[onnx]"',
    ],
)
def test_the_search_finds_what_it_looks_for(command: str) -> None:
    assert _FROM_AN_INDEX.search(command.encode())


@pytest.mark.parametrize(
    "command",
    ["pip install -e '.[onnx]'", "pip install ./fedaux-0.1.0-py3-none-any.whl"],
)
def test_the_search_passes_a_checkout_and_a_wheel(command: str) -> None:
    assert not _FROM_AN_INDEX.search(command.encode())


@pytest.mark.parametrize("app", APPS, ids=lambda path: path.parent.name)
def test_an_app_does_not_depend_on_a_name_of_an_index(app: Path) -> None:
    """Flower installs what an app depends on."""
    dependencies = tomllib.loads(app.read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    assert dependencies
    assert [one for one in dependencies if one.startswith("fedaux")] == []
    flower = next(one for one in PROJECT["dependencies"] if one.startswith("flwr"))
    assert flower.replace("flwr", "flwr[simulation]") in dependencies


def test_the_table_has_every_extra() -> None:
    table = PAGE.partition("## Extras")[2].partition("## Containers")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(PROJECT["optional-dependencies"])


def test_the_versions_are_those_of_the_package() -> None:
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for name in ("flwr", "torch"):
        pinned = re.search(rf"^{name}==(\S+)$", constraints, flags=re.MULTILINE)
        assert pinned
        assert pinned[1] in PAGE
    promised = [
        text.rpartition(" ")[2]
        for text in PROJECT["classifiers"]
        if ":: Python :: 3." in text
    ]
    assert all(version in PAGE for version in promised)
    assert f"fedaux-{PROJECT['version']}-py3-none-any.whl" in PAGE


def test_the_extra_for_sites_allows_the_tested_flower_alone() -> None:
    """All else takes newer ones: a ceiling for everybody ages with every release."""
    (flower,) = PROJECT["optional-dependencies"]["deploy"]
    allowed = Requirement(flower).specifier
    assert all(allowed.contains(f"{version}.0") for version in TESTED_FLOWER)
    major, minor = TESTED_FLOWER[-1].split(".")
    assert not allowed.contains(f"{major}.{int(minor) + 1}.0")
    (everybody,) = [one for one in PROJECT["dependencies"] if one.startswith("flwr")]
    assert "<" not in everybody
