"""What a field of a message may hold, to the last bit: its type, its shape and its
range.

A message comes from a party that may be hostile, and a client's proof of privacy is
about numbers of a certain type. An integer where a float was meant wraps where a float
would not, and another byte order or a broader type takes another kernel. So nothing is
converted here: a field is what its type says, or the message is refused.

Text is shown to people and written to logs, so it consists of printable characters: an
escape sequence could rewrite what an owner reads on a terminal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_JSON = 100_000  # characters
ANY_NAME = "*"


@dataclass(frozen=True)
class Text:
    """Printable text of at most `length` characters, or one of `choices`."""

    length: int = 256
    choices: tuple[str, ...] = ()

    def problem(self, value: Any) -> str:
        """Say what the value should be, or "" if it is that."""
        if self.choices:
            if type(value) is str and value in self.choices:
                return ""
            return f"one of {', '.join(self.choices)}"
        if type(value) is not str or len(value) > self.length:
            return f"text of at most {self.length} characters"
        if not value.isprintable():
            return "printable text, without line breaks and control characters"
        return ""


@dataclass(frozen=True)
class Hash:
    """The hexadecimal digits of 256 bits."""

    def problem(self, value: Any) -> str:
        is_hash = (
            type(value) is str
            and len(value) == 64
            and set(value) <= set("0123456789abcdef")
        )
        return "" if is_hash else "64 hexadecimal digits"


@dataclass(frozen=True)
class JsonObject:
    """Text that is a JSON object with exactly these entries, each of its type. Without
    `entries`, any object.
    """

    entries: Mapping[str, type] | None = None
    optional: bool = False  # whether "" may stand for no object

    def problem(self, value: Any) -> str:
        if self.optional and value == "":
            return ""
        content = _parse(value)
        if not isinstance(content, dict):
            return f"a JSON object of at most {MAX_JSON} characters"
        if not _is_printable(content):
            return "a JSON object of printable text"
        if self.entries is None:
            return ""
        types = {name: type(entry) for name, entry in content.items()}
        if types == dict(self.entries):
            return ""
        expected = ", ".join(
            f"{name} ({kind.__name__})" for name, kind in self.entries.items()
        )
        return f"a JSON object with {expected}"


def _parse(value: Any) -> Any:
    """Return the content of JSON text, or None if it is not JSON."""
    if type(value) is not str or len(value) > MAX_JSON:
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _is_printable(content: Any) -> bool:
    """Whether all text in a JSON value is printable; escapes such as \\u001b are
    resolved here.

    This is no recursion, since content that is deep enough to parse may be too deep for
    one.
    """
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and not value.isprintable():
            return False
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
    return True


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`: an integer if `whole`, else a float. Never NaN.

    Both bounds are included, or excluded if the range is `strict`.
    """

    low: float
    high: float
    whole: bool = True
    strict: bool = False

    def problem(self, value: Any) -> str:
        kind = int if self.whole else float
        if type(value) is kind and self._contains(value):
            return ""
        if self.low == self.high:
            return str(self.low)
        noun = "an integer" if self.whole else "a number"
        low = self._in_words(self.low)
        high = self._in_words(self.high)
        if self.strict:
            return f"{noun} above {low} and below {high}"
        return f"{noun} from {low} to {high}"

    def _in_words(self, bound: float) -> str:
        return str(bound) if self.whole else f"{bound:g}"

    def _contains(self, value: float) -> bool:
        if self.strict:
            return self.low < value < self.high
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def problem(self, value: Any) -> str:
        return "" if type(value) is bool else "true or false"


@dataclass(frozen=True)
class ArrayType:
    """An array of one of these types, in the machine's own byte order, with a given
    shape.

    Letters in the shape stand for sizes that must agree within a field, None for any
    shape. Finite values lie between `low` and `high`. There is no NaN, and there are
    infinities only where `finite` is false.
    """

    types: tuple[str, ...]
    shape: tuple[str | int, ...] | None
    low: float = -np.inf
    high: float = np.inf
    finite: bool = True
    most: int = 2**62  # bytes

    def problem(self, array: Any, sizes: dict[str, int]) -> str:
        """Return what the array should be, or "" if it is. The sizes of letters are
        added to `sizes`.
        """
        types = [np.dtype(name) for name in self.types]
        if not isinstance(array, np.ndarray) or array.dtype not in types:
            return f"an array of {' or '.join(self.types)}"
        if self.shape is not None and not _fits(array.shape, self.shape, sizes):
            agreed = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            expected = f"of shape {_in_words(self.shape)}"
            return f"{expected} with {agreed}" if agreed else expected
        if array.nbytes > self.most:
            return f"at most {self.most} bytes"
        if not _within(array, self):
            numbers = "finite numbers" if self.finite else "numbers"
            return f"{numbers}{self._bounds()}"
        return ""

    def _bounds(self) -> str:
        has_low = np.isfinite(self.low)
        has_high = np.isfinite(self.high)
        if has_low and has_high:
            return f" from {self.low:g} to {self.high:g}"
        if has_low:
            return f" from {self.low:g} on"
        if has_high:
            return f" of at most {self.high:g}"
        return ""

    def bytes_at_most(self) -> int:
        """Return the bytes of the largest such array; letters and free shapes leave
        them to `most`.
        """
        if self.shape is None or any(isinstance(size, str) for size in self.shape):
            return self.most
        numbers = math.prod(size for size in self.shape if isinstance(size, int))
        return numbers * max(np.dtype(name).itemsize for name in self.types)


def _form_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    return type(value).__name__


def _in_words(shape: tuple[str | int, ...]) -> str:
    """Write a shape as numpy does, but letters without quotes."""
    sizes = ", ".join(map(str, shape))
    return f"({sizes},)" if len(shape) == 1 else f"({sizes})"


def _fits(
    shape: tuple[int, ...], expected: tuple[str | int, ...], sizes: dict[str, int]
) -> bool:
    if len(shape) != len(expected):
        return False
    for size, wanted in zip(shape, expected, strict=True):
        if isinstance(wanted, str):
            # a letter means whatever size it had first
            if size != sizes.setdefault(wanted, size) or size < 1:
                return False
        elif size != wanted:
            return False
    return True


def _within(array: NDArray[Any], kind: ArrayType) -> bool:
    """Check the range without copying the array: NaN fails both comparisons, and any
    infinity is an extreme.
    """
    if not array.size or array.dtype.kind not in "fiub":
        return True
    low = array.min()
    high = array.max()
    if kind.finite and not (np.isfinite(low) and np.isfinite(high)):
        return False
    return bool(low >= kind.low and high <= kind.high)


@dataclass(frozen=True)
class ArrayGroup:
    """Arrays by name. `ANY_NAME` stands for names that cannot be known, those of a
    user's own method or scorer.

    Attributes:
        arrays: The type of each array.
        complete: Whether either all names are present or none.
        needed: Whether at least one name is present.
        count: The largest number of arrays under `ANY_NAME`.
        most: The bytes that all arrays under `ANY_NAME` have together at most.
    """

    arrays: Mapping[str, ArrayType]
    complete: bool = True
    needed: bool = False
    count: int = 1000
    most: int = 2**62

    def problem(self, value: Any) -> str:
        names = ", ".join(self.arrays)
        if not isinstance(value, dict) or (self.needed and not value):
            return f"arrays {names}"
        has_free_names = ANY_NAME in self.arrays
        check_names = self._free_problem if has_free_names else self._names_problem
        problem = check_names(value)
        if problem:
            return problem
        sizes: dict[str, int] = {}
        for name, array in value.items():
            type_name = name if name in self.arrays else ANY_NAME
            problem = self.arrays[type_name].problem(array, sizes)
            if problem:
                return f"{name!r}: {problem}, but it is {_form_of(array)}"
        return ""

    def _names_problem(self, value: dict[str, Any]) -> str:
        missing = self.complete and bool(value) and set(value) != set(self.arrays)
        if set(value) <= set(self.arrays) and not missing:
            return ""
        expected = f"the arrays {', '.join(self.arrays)}" if self.arrays else "empty"
        return f"{expected}, not {', '.join(map(repr, value))}"

    def _free_problem(self, value: dict[str, Any]) -> str:
        if not all(isinstance(name, str) and name.isprintable() for name in value):
            return "arrays with printable names"
        if len(value) > self.count:
            return f"at most {self.count} arrays"
        size = sum(
            array.nbytes for array in value.values() if isinstance(array, np.ndarray)
        )
        if size > self.most:
            return f"at most {self.most} bytes"
        return ""

    def bytes_at_most(self) -> int:
        """Return the bytes that all arrays have together at most."""
        if ANY_NAME in self.arrays:
            return min(self.most, self.count * self.arrays[ANY_NAME].bytes_at_most())
        return sum(kind.bytes_at_most() for kind in self.arrays.values())

    def count_at_most(self) -> int:
        """Return the number of arrays at most."""
        if ANY_NAME in self.arrays:
            return self.count
        return len(self.arrays)


Type = Text | Hash | JsonObject | Number | Flag | ArrayGroup
