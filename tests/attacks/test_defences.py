"""Every attack of docs/attacks.md has a defence and a test of it; `helpers.defences` takes them out one at a time."""

import ast
import re
from functools import cache

import pytest

from helpers.defences import TESTS, Defence, defences

PAGE = (TESTS.parent / "docs" / "attacks.md").read_text(encoding="utf-8")
ROWS = {match[1]: match[0] for match in re.finditer(r"^\| (\w+) \|.*\|$", PAGE, flags=re.MULTILINE)}
DEFENCES = defences()


@cache
def functions(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: f"{defence.attack}: {defence.what}")
def test_what_stops_an_attack_is_there_and_so_is_its_test(defence: Defence) -> None:
    text = defence.source().read_text(encoding="utf-8")
    assert text.count(defence.old) == 1
    assert defence.removed() != text
    if defence.file.endswith(".py"):
        ast.parse(defence.removed())  # fails for what is missing, not for a slip of the pen
    file, name = defence.test.partition("[")[0].split("::")
    found = functions(file)[name]
    assert not [mark for mark in found.decorator_list if "slow" in ast.unparse(mark)]
    assert defence.red, "what the test says then"
    row = ROWS[defence.attack]
    assert f"`{defence.file}`" in row
    assert f"`{file}`" in row


def test_every_attack_of_the_page_has_a_defence() -> None:
    assert set(ROWS) == {defence.attack for defence in DEFENCES}
    assert {str(number) for number in range(1, 14)} <= set(ROWS)
