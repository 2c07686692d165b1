"""Conversion between TOML tables and frozen dataclasses, with an error that names every wrong key or value."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_type_hints

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit, FedauxError, unknown_name

Option = int | float | str | bool | tuple[str, ...] | tuple[int, ...]
Options = tuple[tuple[str, Option], ...]  # sorted by name


class ConfigError(FedauxError, ValueError):
    """An invalid setting; the message names the key, what is allowed and what to do."""

    code = Exit.SETTINGS


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def require_within(key: str, value: float, interval: str, hint: str = "") -> None:
    """The value of a key must lie in an interval such as "(0, 1]", with 0 left out and 1 in."""
    low, high = interval[1:-1].split(", ")
    above = value > float(low) if interval[0] == "(" else value >= float(low)
    below = value < float(high) if interval[-1] == ")" else value <= float(high)
    if not (above and below):
        words = f"{'above' if interval[0] == '(' else 'at least'} {low}"
        if high != "inf":
            words += f" and {'below' if interval[-1] == ')' else 'at most'} {high}"
        raise ConfigError(f"{key} must be {words}, not {value}{': ' + hint if hint else ''}.")


def require_choice(key: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(str(unknown_name(key, value, allowed)))


def apply_override(table: dict[str, Any], text: str) -> None:
    """Set one `key=value` in nested tables; the value is TOML, or a string without quotes."""
    key, equals, value = text.partition("=")
    require(bool(equals), f"--set {text!r} is not of the form key=value, for example --set local.lr=0.01.")
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
        require(isinstance(table, dict), f"{context}: {parent} is a value, not a table of settings.")
    table[leaf] = value


def dotted(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested tables with its dotted key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def from_table(cls: Any, table: Mapping[str, Any], prefix: str = "", known: Sequence[str] = ()) -> Any:
    """Build a dataclass from a table, and its nested dataclasses from the nested tables.

    `known` are all keys of the whole, among which an unknown one may be meant.
    """
    hints = get_type_hints(cls)
    known = known or list(_keys(cls, prefix))
    for key in table:
        if key not in hints:
            raise ConfigError(_unknown_key(prefix + key, [prefix + name for name in hints], known))
    return cls(**{key: _value(hints[key], value, prefix + key, known) for key, value in table.items()})


def _keys(cls: Any, prefix: str = "") -> Iterator[str]:
    for name, hint in get_type_hints(cls).items():
        if dataclasses.is_dataclass(hint):
            yield from _keys(hint, f"{prefix}{name}.")
        else:
            yield prefix + name


def _unknown_key(key: str, here: Sequence[str], known: Sequence[str]) -> str:
    """Names the full keys that may be meant: of the same name elsewhere, or an option of a source."""
    section, _, leaf = key.rpartition(".")
    others = [name for name in known if name.rpartition(".")[2] == leaf]
    if others:
        return f"there is no key {key}; there is {' and '.join(others)}."
    text = str(unknown_name("key", key, here))
    if f"{section}.options" in here:
        return f"{text}. If {leaf} is an option of the source, write {section}.options.{leaf}."
    return text


def to_plain(value: Any) -> Any:
    """The inverse of `from_table`: dicts, lists and scalars only."""
    if isinstance(value, PrototypeSpec):
        return {"name": value.name, **dict(value.options)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: to_plain(dict(item) if name.endswith("options") else item) for name, item in fields.items()}
    if isinstance(value, dict):
        return {name: to_plain(item) for name, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def sorted_options(key: str, options: Options) -> Options:
    """Options sorted by name; each must be a scalar, or a tuple of texts or of whole numbers."""
    for name, item in options:
        kinds = set(map(type, item)) if isinstance(item, tuple) else set()
        require(
            isinstance(item, (int, float, str)) or (isinstance(item, tuple) and kinds in (set(), {str}, {int})),
            f"{key}.{name} must be a number, text, true/false, or a list of text or of whole numbers.",
        )
    return tuple(sorted(options))


def _value(hint: Any, value: Any, key: str, known: Sequence[str] = ()) -> Any:
    if dataclasses.is_dataclass(hint):
        require(isinstance(value, Mapping), f"{key} must be a table: write [{key}] and its settings below.")
        return from_table(hint, value, f"{key}.", known)
    if hint == tuple[PrototypeSpec, ...]:
        return tuple(_prototype(entry) for entry in (value if isinstance(value, (list, tuple)) else [value]))
    if hint == tuple[str, ...]:
        strings = isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value)
        require(strings, f"{key} must be a list of text, not {value!r}.")
        return tuple(value)
    if hint == Options:
        require(isinstance(value, Mapping), f"{key} must be a table of options.")
        return tuple((name, tuple(item) if isinstance(item, list) else item) for name, item in value.items())
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    valid = isinstance(value, hint) and not (hint is int and isinstance(value, bool))
    expected = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    require(valid, f"{key} must be {expected[hint]}, not {value!r}.")
    return value


def _prototype(entry: Any) -> PrototypeSpec:
    """A prototype from its name, or from a table of its name and options."""
    if isinstance(entry, str):
        return PrototypeSpec(entry)
    if not (isinstance(entry, Mapping) and isinstance(entry.get("name"), str)):
        example = "{name = 'resnet8', width = 16}"
        raise ConfigError(f"each prototype is a name or a table with a name, such as {example}, not {entry!r}.")
    options = tuple((key, value) for key, value in entry.items() if key != "name")
    require(
        all(isinstance(value, (int, float, str)) for _, value in options),
        f"the options of a prototype are scalars, not {entry!r}.",
    )
    return PrototypeSpec(entry["name"], options)
