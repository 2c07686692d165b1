"""Names like `room/module.py:name` in the pages exist; walks are short; lines of the
paper have a function.
"""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
MOST_FILES = 8  # of a walk

_NAMED = re.compile(r"`(?:src/fedaux/)?((?:\w+/)+\w+\.py):([A-Za-z_][\w.]*)`")


def named(text: str) -> list[tuple[str, str]]:
    """(file below src/fedaux, name in it), in order."""
    return _NAMED.findall(text)


def exists(file: str, name: str) -> bool:
    """Whether the module has that attribute; a field of a dataclass without a default
    counts as one.
    """
    *holders, last = name.split(".")
    try:
        holder = reduce(
            getattr,
            holders,
            importlib.import_module("fedaux." + file[:-3].replace("/", ".")),
        )
    except (ImportError, AttributeError):
        return False
    return hasattr(holder, last) or last in getattr(holder, "__dataclass_fields__", {})


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level or above."""
    level = len(heading.split(" ")[0])
    found = re.search(
        rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{level}}} |\Z)",
        page,
        flags=re.MULTILINE | re.DOTALL,
    )
    assert found is not None, heading
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {number for number, line in enumerate(lines[1:]) if set(line) <= set("|- ")}
    kept = [
        line
        for number, line in enumerate(lines)
        if number not in heads and not set(line) <= set("|- ")
    ]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in kept
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page: Path) -> None:
    missing = [
        f"{file}:{name}"
        for file, name in named(page.read_text(encoding="utf-8"))
        if not exists(file, name)
    ]
    assert missing == []


def test_there_are_three_short_walks() -> None:
    headings = re.findall(
        r"^### Walk \d: .+$", section(DESIGN, "## Three walks"), flags=re.MULTILINE
    )
    assert len(headings) == 3
    for heading in headings:
        walk = section(DESIGN, heading)
        files = [file for file, _ in named(walk)]
        assert 4 <= len(set(files)) <= MOST_FILES, heading
        steps = re.findall(r"^\d\. .*", walk, flags=re.MULTILINE)
        assert all(named(step) for step in steps), heading
        assert len(steps) == len(set(files)), "a step for each file"


def test_every_line_of_the_paper_has_a_function_or_says_why_not() -> None:
    lines = rows(section(DESIGN, "## From the paper to the code"))
    assert len(lines) > 40
    assert [
        cells
        for cells in lines
        if not named(cells[2]) and not cells[2].startswith("never computed")
    ] == []
    rulings = {
        cells[0]
        for cells in rows((ROOT / "docs" / "rulings.md").read_text(encoding="utf-8"))
    }
    cited = {
        letter
        for cells in lines
        if len(cells) == 4
        for letter in cells[3].split(", ")
        if letter
    }
    assert len(cited) > 8
    assert cited <= rulings


def test_every_room_is_described() -> None:
    described = [cells[0].strip("`") for cells in rows(section(DESIGN, "## Rooms"))]
    assert sorted(described) == sorted(
        path.parent.name for path in ROOT.glob("src/fedaux/*/__init__.py")
    )


def test_the_checks_can_fail() -> None:
    assert named("`a/b.py:c`, `src/fedaux/a/b.py:C.d` and `a/b.py`") == [
        ("a/b.py", "c"),
        ("a/b.py", "C.d"),
    ]
    assert exists("messages/replies.py", "Update.weights")
    assert not exists("messages/replies.py", "Update.nonsense")
    assert not exists("core/nonsense.py", "Update")
    assert rows("| a | b |\n| - | - |\n| 1 \\| 2 | 3 |\n") == [["1 \\| 2", "3"]]
    assert section("# A\nx\n## B\ny\n# C\n", "# A") == "\nx\n## B\ny\n"
