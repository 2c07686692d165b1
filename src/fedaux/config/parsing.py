"""Conversion between TOML tables and frozen dataclasses, with an error that names every
wrong key or value.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from pathlib import PurePath
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    get_args,
    get_origin,
    get_type_hints,
)

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit, FedauxError, unknown_name

OptionValue = int | float | str | bool | tuple[str, ...] | tuple[int, ...]
Options = tuple[tuple[str, OptionValue], ...]  # sorted by name


class ConfigError(FedauxError, ValueError):
    """An invalid setting. The message names the key, what is allowed and what to do."""

    code = Exit.SETTINGS


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def require_choice(key: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(str(unknown_name(key, value, allowed)))


@dataclasses.dataclass(frozen=True)
class Within:
    """The interval in which a number must lie: `Annotated[float, Within("(0, 1]")]`
    leaves 0 out and takes 1.
    """

    interval: str
    hint: str = ""

    def check(self, key: str, value: float) -> None:
        low, high = self.interval[1:-1].split(", ")
        above = value > float(low) if self.interval[0] == "(" else value >= float(low)
        below = (
            value < float(high) if self.interval[-1] == ")" else value <= float(high)
        )
        if not (above and below):
            words = f"{'above' if self.interval[0] == '(' else 'at least'} {low}"
            if high != "inf":
                words += (
                    f" and {'below' if self.interval[-1] == ')' else 'at most'} {high}"
                )
            raise ConfigError(
                f"Cannot use these settings: {key} must be {words}, not "
                f"{value}{': ' + self.hint if self.hint else ''}. Correct the value."
            )


Count = Annotated[int, Within("[1, inf)")]
Natural = Annotated[int, Within("[0, inf)")]
Positive = Annotated[float, Within("(0, inf)")]
NonNegative = Annotated[float, Within("[0, inf)")]
Fraction = Annotated[float, Within("(0, 1)")]
Share = Annotated[float, Within("(0, 1]")]
Probability = Annotated[float, Within("[0, 1]")]
Rate = Annotated[float, Within("(0, 1e20]")]
Momentum = Annotated[float, Within("[0, 1)")]


class Settings:
    """A table of settings: a frozen dataclass that converts its values to their
    declared types and checks them.

    Nested tables may be given as dictionaries, lists as lists, one prototype by its
    name. Types are annotations: a `Literal` for a choice, `Annotated[int, Within("[1,
    inf)")]` for a number.
    """

    section: ClassVar[str] = ""  # the prefix of its keys in messages, such as "data."

    def __post_init__(self) -> None:
        # to mypy, a class cannot be hashed
        hints = type_hints(type(self))  # type: ignore[arg-type]
        for name, hint in hints.items():
            object.__setattr__(
                self,
                name,
                convert_value(hint, getattr(self, name), f"{self.section}{name}"),
            )
        self.check()

    def check(self) -> None:
        """Check what several settings must agree on."""


@cache
def type_hints(cls: Any) -> dict[str, Any]:
    """The declared types of a dataclass's fields."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def apply_override(table: dict[str, Any], text: str) -> None:
    """Set one `key=value` in nested tables. The value is TOML, or a string without
    quotes.
    """
    key, equals, value = text.partition("=")
    require(
        bool(equals),
        f"Cannot read --set {text!r}: it is not of the form key=value. Write it as in "
        "--set local.lr=0.01.",
    )
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value  # --set method=feddf
    set_key(table, key.strip(), parsed, f"--set {key}")


def set_key(table: dict[str, Any], key: str, value: Any, context: str) -> None:
    """Set a dotted key in nested tables; error messages start with `context`."""
    *parents, leaf = key.split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        require(
            isinstance(table, dict),
            f"Cannot read {context}: {parent} is a value, not a table of settings. "
            "Correct the key.",
        )
    table[leaf] = value


def dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested tables with its dotted key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def from_table(
    cls: Any, table: Mapping[str, Any], prefix: str = "", known: Sequence[str] = ()
) -> Any:
    """Build a dataclass from a table, and its nested dataclasses from the nested
    tables.

    `known` are all keys of the whole, among which an unknown one may be meant.
    """
    hints = type_hints(cls)
    known = known or list(keys_of(cls, prefix))
    for key in table:
        if key not in hints:
            raise ConfigError(
                _unknown_key(prefix + key, [prefix + name for name in hints], known)
            )
    return cls(
        **{
            key: convert_value(hints[key], value, prefix + key, known)
            for key, value in table.items()
        }
    )


def keys_of(cls: Any, prefix: str = "") -> Iterator[str]:
    """The dotted keys of all settings."""
    for name, hint in type_hints(cls).items():
        if dataclasses.is_dataclass(hint):
            yield from keys_of(hint, f"{prefix}{name}.")
        else:
            yield prefix + name


def _unknown_key(key: str, here: Sequence[str], known: Sequence[str]) -> str:
    """Names the full keys that may be meant: of the same name elsewhere, or an option
    of a source.
    """
    section, _, leaf = key.rpartition(".")
    others = [name for name in known if name.rpartition(".")[2] == leaf]
    if others:
        return (
            f"Cannot use the key {key!r}: there is no such key. Use "
            f"{' or '.join(others)}."
        )
    text = str(unknown_name("key", key, here))
    if f"{section}.options" in here:
        return (
            f"{text} If {leaf} is an option of the source, write "
            f"{section}.options.{leaf}."
        )
    return text


def to_plain(value: Any) -> Any:
    """The inverse of `from_table`: dicts, lists and scalars only."""
    if isinstance(value, PrototypeSpec):
        return {"name": value.name, **dict(value.options)}
    if dataclasses.is_dataclass(value):
        fields = {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
        }
        return {
            name: to_plain(dict(item) if name.endswith("options") else item)
            for name, item in fields.items()
        }
    if isinstance(value, dict):
        return {name: to_plain(item) for name, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def sorted_options(key: str, options: Iterable[tuple[str, Any]]) -> Options:
    """Options sorted by name. Each must be a scalar, or a list of texts or of whole
    numbers.
    """
    found = [
        (name, tuple(item) if isinstance(item, list) else item)
        for name, item in options
    ]
    for name, item in found:
        kinds = set(map(type, item)) if isinstance(item, tuple) else set()
        require(
            isinstance(item, (int, float, str))
            or (isinstance(item, tuple) and kinds in (set(), {str}, {int})),
            f"Cannot use these settings: {key}.{name} must be a number, text, "
            "true/false, or a list of text or of whole numbers. Correct the value.",
        )
    return tuple(sorted(found))


def convert_value(hint: Any, value: Any, key: str, known: Sequence[str] = ()) -> Any:
    """A value as its declared type has it, or an error that names its key."""
    if dataclasses.is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            return value
        require(
            isinstance(value, Mapping),
            f"Cannot use these settings: {key} must be a table. Write [{key}] and its "
            "settings below.",
        )
        return from_table(hint, value, f"{key}.", known)
    if get_origin(hint) is Annotated:
        kind, bounds = get_args(hint)
        value = convert_value(kind, value, key)
        bounds.check(key, value)
        return value
    if hint == (bool | Literal["auto"]):
        require(
            isinstance(value, bool) or value == "auto",
            f"Cannot use these settings: {key} must be true, false or 'auto', not "
            f"{value!r}. Correct the value.",
        )
        return value
    if hint == (tuple[float, ...] | Literal["balanced"]):
        if isinstance(value, str):
            require_choice(key, value, ["balanced"])
            return value
        return convert_value(tuple[float, ...], value, key)
    if get_origin(hint) is Literal:
        require(
            isinstance(value, str),
            f"Cannot use these settings: {key} must be text, not {value!r}. Correct "
            "the value.",
        )
        require_choice(key, value, get_args(hint))
        return value
    if hint == tuple[PrototypeSpec, ...]:
        return tuple(
            _prototype(entry)
            for entry in (value if isinstance(value, (list, tuple)) else [value])
        )
    if hint == tuple[str, ...]:
        strings = isinstance(value, (list, tuple)) and all(
            isinstance(text, str) for text in value
        )
        require(
            strings,
            f"Cannot use these settings: {key} must be a list of text, not {value!r}. "
            "Correct the value.",
        )
        return tuple(value)
    if hint == tuple[float, ...]:
        numbers = isinstance(value, (list, tuple)) and all(
            isinstance(number, Real) and not isinstance(number, bool)
            for number in value
        )
        require(
            numbers,
            f"Cannot use these settings: {key} must be a list of numbers, not "
            f"{value!r}. Correct the value.",
        )
        return tuple(map(float, value))
    if hint == Options:
        pairs = isinstance(value, tuple) and all(
            isinstance(pair, tuple) and len(pair) == 2 for pair in value
        )
        require(
            isinstance(value, Mapping) or pairs,
            f"Cannot use these settings: {key} must be a table of options, not "
            f"{value!r}. Write it as in {{name = 1}}.",
        )
        return sorted_options(
            key, value.items() if isinstance(value, Mapping) else value
        )
    return _scalar(hint, value, key)


def _scalar(hint: type, value: Any, key: str) -> Any:
    """Numbers of NumPy are numbers, and paths are text. Nothing is rounded."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if hint is float and number:
        return float(value)
    if hint is int and number and isinstance(value, Integral):
        return int(value)
    if hint is str and isinstance(value, PurePath):
        return str(value)
    expected = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
    }
    require(
        isinstance(value, hint) and hint is not int,
        f"Cannot use these settings: {key} must be {expected[hint]}, not {value!r}. "
        "Correct the value.",
    )
    return value


def _prototype(entry: Any) -> PrototypeSpec:
    """A prototype from its name, or from a table of its name and options."""
    if isinstance(entry, PrototypeSpec):
        return entry
    if isinstance(entry, str):
        return PrototypeSpec(entry)
    if not (isinstance(entry, Mapping) and isinstance(entry.get("name"), str)):
        example = "{name = 'resnet8', width = 16}"
        raise ConfigError(
            f"Cannot read the prototype {entry!r}: each prototype is a name or a table "
            f"with a name. Write it as in {example}."
        )
    options = tuple((key, value) for key, value in entry.items() if key != "name")
    require(
        all(isinstance(value, (int, float, str)) for _, value in options),
        f"Cannot read the prototype {entry!r}: the options of a prototype are scalars. "
        "Correct them.",
    )
    return PrototypeSpec(entry["name"], options)
