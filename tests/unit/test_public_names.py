"""The public interface: every name resolves, lazily, and type checkers see the same
names as Python does.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedaux

SOURCE = Path(fedaux.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", fedaux.__all__)
def test_a_public_name_resolves_and_is_documented(name: str) -> None:
    assert getattr(fedaux, name).__doc__
    assert name in dir(fedaux)


def test_type_checkers_see_the_same_names() -> None:
    (block,) = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.If)]
    typed = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {
        name: f"fedaux.{home}.{name}" for name, home in fedaux._HOMES.items()
    }


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fedaux.nonsense
