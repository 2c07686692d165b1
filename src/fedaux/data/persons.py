"""The person a record belongs to, as an integer id. Records without a person share the id of the empty name."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.parsing import ConfigError
from fedaux.data.array_values import load_values

WHOLE = re.compile(r"\A(-?[0-9]+)\.0+\Z")  # 1.0 in an array of texts: a number that came among them


def to_name(value: Any) -> str | None:
    """A label or person as text, whatever type a table stores it in: 3 and 3.0 are the same; None if it is missing."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def name_or_nobody(value: Any) -> str:
    """The name, or "" where there is none, or where it cannot be told: nested without end, a number beyond print."""
    try:
        return to_name(value) or ""
    except (ValueError, RecursionError):
        return ""


def factorize(names: Iterable[Hashable]) -> NDArray[np.int64]:
    """Integer ids in the order of first appearance."""
    ids: dict[Hashable, int] = {}
    return np.array([ids.setdefault(name, len(ids)) for name in names], dtype=np.int64)


def persons_from_array(file: Path, rows: int) -> NDArray[np.int64]:
    """Ids from an array with one name or number for each row, the same whatever type the array has."""
    if not file.exists():
        raise FileNotFoundError(
            f"{file} is missing; data.person = {file.stem!r} names it: one person for each row of x"
        )
    persons = load_values(file)
    if len(persons) != rows:
        raise ValueError(f"{file} must hold one person for each of the {rows} rows of x, not {len(persons)}")
    return factorize(WHOLE.sub(r"\1", name_or_nobody(value)) for value in persons)


def persons_from_paths(pattern: str, files: Sequence[Path], root: Path) -> NDArray[np.int64]:
    """Ids from file paths below `root`: the first group of the pattern, or the whole match."""
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise ConfigError(f"data.person = {pattern!r} is no regular expression: {error}.") from error
    matches = (search(file.relative_to(root).as_posix()) for file in files)
    return factorize((match[1 if match.re.groups else 0] or "") if match else "" for match in matches)
