"""Objects of a Python session under names, so that a configuration can hold them:
`here:Net-3fa9c1d2`.

A name ends in a hash of the content. The same object gets the same name in the next
session, so that an interrupted run can continue; another object gets another name.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
from functools import partial
from types import CodeType
from typing import Any

PREFIX = "here:"
_objects: dict[str, Any] = {}
# names of networks that were passed as objects, for which the caller vouches
vouched: set[str] = set()


def add(label: str, value: Any, *content: bytes | str) -> str:
    """Register `value` for the rest of this process, and return the name under which
    `find` returns it.

    Args:
        label: The readable part of the name.
        value: The object.
        content: Everything that distinguishes it from other objects.
    """
    digest = hashlib.sha256()
    for part in content:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    name = f"{PREFIX}{re.sub(r'[^A-Za-z0-9_]', '_', label)}-{digest.hexdigest()[:8]}"
    _objects[name] = value
    return name


def find(name: str) -> Any:
    """Return the object of this name, or None if this process has none."""
    return _objects.get(name)


def name_of(value: Any) -> str:
    """Return the name of a class or function: `module:name` if it can be imported, else
    a name in this process.
    """
    module, qualified = (
        getattr(value, "__module__", ""),
        getattr(value, "__qualname__", ""),
    )
    if module != "__main__" and qualified.isidentifier():
        try:
            if getattr(importlib.import_module(module), qualified, None) is value:
                return f"{module}:{qualified}"
        except ImportError:
            pass
    label = getattr(value, "__name__", type(value).__name__)
    return add("function" if label == "<lambda>" else label, value, _source(value))


def _source(value: Any) -> str:
    """Return what a function or class does, and with which values: its source, else its
    byte code.
    """
    if isinstance(value, partial):
        return repr((_source(value.func), value.args, value.keywords))
    cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    with_values = (
        getattr(value, "__defaults__", None),
        [one if not callable(one) else _source(one) for one in cells],
    )
    try:
        text = inspect.getsource(value)
    except (OSError, TypeError):
        members = (
            [value, *vars(value).values()] if hasattr(value, "__dict__") else [value]
        )
        codes = (
            getattr(inspect.unwrap(one), "__code__", None)
            for one in members
            if callable(one)
        )
        text = repr([_byte_code(code) for code in codes if code is not None])
    return f"{text}{with_values!r}"


def _byte_code(code: CodeType) -> tuple[Any, ...]:
    constants = [
        _byte_code(one) if isinstance(one, CodeType) else repr(one)
        for one in code.co_consts
    ]
    return code.co_code, code.co_names, constants
