"""Every attack of docs/attacks.md is stopped by a behaviour that mutations replace, and
by a test that then fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from helpers.mutations import (
    AUDIT_FINDINGS,
    FAILING_TESTS,
    FailingTest,
    Mutation,
    find_mutation,
    full_name,
)
from helpers.mutations.runner import TESTS, turns_red

PAGE = (TESTS.parent / "docs" / "attacks.md").read_text(encoding="utf-8")
ROWS = {
    match[1]: match[0]
    for match in re.finditer(r"^\| (\w+) \|.*\|$", PAGE, flags=re.MULTILINE)
}
MUTATIONS = {
    full_name(row.mutation): row.mutation for row in (*FAILING_TESTS, *AUDIT_FINDINGS)
}
OF_A_ROW = [row for row in FAILING_TESTS if row.attack]


class Recorder(pytest.MonkeyPatch):
    """Notes the source files of what is replaced, and of where it is looked up:
    `privacy/account.py`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files: set[str] = set()

    def setattr(
        self, target: Any, name: Any, value: Any = None, raising: bool = True
    ) -> None:
        self.files |= set(source_files(target, getattr(target, name)))
        super().setattr(target, name, value, raising)

    def setitem(self, mapping: Mapping[Any, Any], name: Any, value: Any) -> None:
        self.files |= set(source_files(name, mapping.get(name)))
        super().setitem(mapping, name, value)


def source_files(*items: object) -> Iterator[str]:
    """Yield the files below src/fedaux in which these modules, classes and functions
    are defined.
    """
    for item in items:
        module = (
            item.__name__
            if isinstance(item, ModuleType)
            else getattr(item, "__module__", None)
        )
        if isinstance(module, str) and module.startswith("fedaux."):
            yield f"{module.removeprefix('fedaux.').replace('.', '/')}.py"


def replaced_files(mutation: Mutation) -> set[str]:
    """Apply a mutation, take it off again, and return the source files of what it has
    replaced.
    """
    recorder = Recorder()
    try:
        mutation(recorder)
    finally:
        recorder.undo()
    return recorder.files


@cache
def functions(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_a_mutation_replaces_is_there(name: str) -> None:
    """A function that was renamed would otherwise be replaced no more, and its test
    stay green.
    """
    with pytest.MonkeyPatch.context() as patch:
        MUTATIONS[name](patch)
    assert find_mutation(name) is MUTATIONS[name]
    assert MUTATIONS[name].__doc__, "what the broken system does"


@pytest.mark.parametrize(
    "row", FAILING_TESTS, ids=lambda row: f"{row.attack}: {row.name}"
)
def test_the_test_that_finds_a_mutation_is_there_and_fast(row: FailingTest) -> None:
    function = functions(row.file)[row.function]
    assert not [mark for mark in function.decorator_list if "slow" in ast.unparse(mark)]
    assert row.red, "what the test says then"


@pytest.mark.parametrize("row", OF_A_ROW, ids=lambda row: f"{row.attack}: {row.name}")
def test_the_page_names_the_test_of_an_attack(row: FailingTest) -> None:
    assert f"`{row.file}`" in ROWS[row.attack]


@pytest.mark.parametrize("row", OF_A_ROW, ids=lambda row: f"{row.attack}: {row.name}")
def test_the_page_names_the_source_file_of_what_is_replaced(row: FailingTest) -> None:
    # nothing of fedaux, if a mutation replaces a part of Python
    replaced = replaced_files(row.mutation)
    stops = ROWS[row.attack].split(" | ")[2]
    assert not replaced or replaced & set(
        re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", stops)
    )


def test_every_attack_of_the_page_has_a_mutation() -> None:
    assert set(ROWS) == {row.attack for row in OF_A_ROW}
    assert {str(number) for number in range(1, 14)} <= set(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", FAILING_TESTS, ids=lambda row: f"{row.attack}: {row.name}"
)
def test_a_test_fails_under_its_mutation(row: FailingTest) -> None:
    red, output = turns_red(row)
    assert red, output
