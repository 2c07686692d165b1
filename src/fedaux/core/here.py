"""Objects of a Python session under names, so that a configuration can hold them:
`here:Net-3fa9c1d2`.

A name ends in a hash of the content. The same object gets the same name in the next
session, so that an interrupted run can continue. Another object gets another name.
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
    for piece in content:
        digest.update(piece.encode() if isinstance(piece, str) else piece)
        digest.update(b"\0")
    readable = re.sub(r"[^A-Za-z0-9_]", "_", label)
    name = f"{PREFIX}{readable}-{digest.hexdigest()[:8]}"
    _objects[name] = value
    return name


def find(name: str) -> Any:
    """Return the object of this name, or None if this process has none."""
    return _objects.get(name)


def readable(text: str) -> str:
    """Return a text with the names in it as a reader knows them: `Net`, not
    `here:Net-3fa9c1d2`.
    """
    return re.sub(rf"{PREFIX}(\w+)-[0-9a-f]{{8}}\b", r"\1", text)


def name_of(value: Any) -> str:
    """Return the name of a class or function: `module:name` if it can be imported, else
    a name in this process.
    """
    module = getattr(value, "__module__", "")
    qualified = getattr(value, "__qualname__", "")
    if _can_be_imported(value, module, qualified):
        return f"{module}:{qualified}"
    label = getattr(value, "__name__", type(value).__name__)
    if label == "<lambda>":
        label = "function"
    return add(label, value, _source(value))


def _can_be_imported(value: Any, module: str, qualified: str) -> bool:
    # another process has another __main__
    if module == "__main__" or not qualified.isidentifier():
        return False
    try:
        imported = importlib.import_module(module)
    except ImportError:
        return False
    return getattr(imported, qualified, None) is value


def _source(value: Any) -> str:
    """Return what a function or class does, and with which values: its source, else its
    byte code.
    """
    if isinstance(value, partial):
        return repr((_source(value.func), value.args, value.keywords))
    defaults = getattr(value, "__defaults__", None)
    enclosed = []
    for cell in getattr(value, "__closure__", None) or ():
        content = cell.cell_contents
        enclosed.append(_source(content) if callable(content) else content)
    try:
        source = inspect.getsource(value)
    except (OSError, TypeError):
        source = repr(_byte_codes(value))
    return f"{source}{(defaults, enclosed)!r}"


def _byte_codes(value: Any) -> list[tuple[Any, ...]]:
    """Return the byte code of a function, or of all methods of a class."""
    members = [value]
    if hasattr(value, "__dict__"):
        members += vars(value).values()
    byte_codes = []
    for member in members:
        if callable(member):
            code = getattr(inspect.unwrap(member), "__code__", None)
            if code is not None:
                byte_codes.append(_byte_code(code))
    return byte_codes


def _byte_code(code: CodeType) -> tuple[Any, ...]:
    constants = [
        _byte_code(constant) if isinstance(constant, CodeType) else repr(constant)
        for constant in code.co_consts
    ]
    return code.co_code, code.co_names, constants
