"""What the pages, examples and templates import is public."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedaux
import fedaux.flower
from helpers.docs_pages import PAGES, ROOT, blocks

PUBLIC = {"fedaux": set(fedaux.__all__), "fedaux.flower": set(fedaux.flower.__all__)}


def sources() -> Iterator[tuple[str, str]]:
    """(where, Python) of everything that a reader may copy."""
    for page in PAGES:
        for number, one in enumerate(blocks(page.read_text(encoding="utf-8"))):
            if one.language == "python":
                yield f"{page.name}, block {number}", one.text
    for path in [
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "src").glob("fedaux/*/templates/**/*.py"),
    ]:
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in (ROOT / "examples").rglob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        yield (
            path.name,
            "\n".join(
                "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
            ),
        )


def private_imports(source: str) -> list[str]:
    """Names of the package that it imports although they are not public."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [
                one.name
                for one in node.names
                if one.name.startswith("fedaux.") and one.name not in PUBLIC
            ]
        elif (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == "fedaux"
        ):
            names = PUBLIC.get(node.module or "", set())
            found += [
                f"{node.module}.{one.name}"
                for one in node.names
                if one.name not in {*names, "flower"}
            ]
    return found


@pytest.mark.parametrize(
    ("where", "source"), [pytest.param(*one, id=one[0]) for one in sources()]
)
def test_what_readers_copy_imports_public_names_only(where: str, source: str) -> None:
    assert private_imports(source) == []


def test_a_private_import_would_be_found() -> None:
    assert private_imports(
        "from fedaux.core.io import x\nfrom fedaux import nothing, run\nimport "
        "fedaux.cli"
    ) == [
        "fedaux.core.io.x",
        "fedaux.nothing",
        "fedaux.cli",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_path_into_the_package_is_public_or_marked(page: Path) -> None:
    """`fedaux.run` is public; for a module that may move, the line says so."""
    unmarked = [
        line[:80]
        for line in page.read_text(encoding="utf-8").splitlines()
        if not line.startswith(":::") and private_paths(line) and "internal" not in line
    ]
    assert unmarked == []


def private_paths(line: str) -> list[str]:
    """What a line of a page names below the package that is not public."""
    named = re.findall(
        r"\bfedaux\.([a-z]\w*)(?:\.(\w+))?", re.sub(r"]\(.*?\)", "", line)
    )
    return [
        f"{first}.{second}"
        for first, second in named
        if second
        and first not in {*PUBLIC["fedaux"], "toml", "md"}
        and not (first == "flower" and second in {*PUBLIC["fedaux.flower"], "__all__"})
    ]


def test_a_private_path_would_be_found() -> None:
    assert private_paths("call `fedaux.data.tables.from_frame(x)`") == ["data.tables"]
    assert private_paths("call `fedaux.run(x)` and `fedaux.flower.FedAUX`") == []


def documented() -> set[str]:
    """The names that the Python reference describes."""
    pages = [ROOT / "docs" / "api.md", *(ROOT / "docs" / "api").glob("*.md")]
    found: set[str] = set()
    for page in pages:
        text = page.read_text(encoding="utf-8")
        found.update(re.findall(r"^::: fedaux\.(?:\w+\.)*(\w+)$", text, re.MULTILINE))
    return found


def test_what_the_reference_describes_can_be_imported_and_nothing_else() -> None:
    assert documented() == {*PUBLIC["fedaux"], *PUBLIC["fedaux.flower"]}
