"""Between plain tables, as TOML has them, and frozen dataclasses: every wrong key or value gets a clear error."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.errors import Exit, FedauxError, unknown

Option = int | float | str | bool | tuple[str, ...]
Options = tuple[tuple[str, Option], ...]  # sorted by name


RENAMED = {
    **{
        old: f"it is called {new} now"
        for old, new in {
            "participation": "fraction",
            "linear": "head_only",
            "start": "head_init",
            "data.test_share": "data.test_fraction",
            "aux.share": "aux.fraction",
            "pretrain.batch": "pretrain.batch_size",
            "pretrain.chunk": "pretrain.micro_batch_size",
            "pretrain.projection": "pretrain.projection_dim",
            "pretrain.crop": "pretrain.min_crop_area",
            "local.batch": "local.batch_size",
            "distill.batch": "distill.batch_size",
            "federation.wait": "federation.connect_timeout",
            "federation.spare": "federation.over_selection",
            "federation.max_share": "teachers.max_share",
            "privacy.weights": "teachers.weights",
            "privacy.dims": "privacy.embedding_dim",
            "privacy.certificate": "privacy.calibration",
            "privacy.person_records": "privacy.max_records_per_person",
            "privacy.train_clip": "privacy.max_grad_norm",
            "privacy.train_rate": "privacy.sample_rate",
        }.items()
    },
    "privacy.train_epsilon": "set privacy.private_training = true, and privacy.epsilon_total to what scores and "
    "training may cost together",
    "privacy.releases": "a client releases for as long as the total stays below privacy.epsilon_total",
}


class ConfigError(FedauxError, ValueError):
    """A setting that cannot be right; the message names the key, what is allowed and what to do."""

    code = Exit.SETTINGS


def need(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def one_of(key: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigError(str(unknown(key, value, allowed)))


def override(table: dict[str, Any], text: str) -> None:
    """Set one `key=value` in nested tables; the value is TOML, or a bare word."""
    key, found, value = text.partition("=")
    need(bool(found), f"--set {text!r} is not of the form key=value, for example --set local.lr=0.01.")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value  # a bare word is a string: --set method=feddf
    put(table, key.strip(), parsed, f"--set {key}")


def put(table: dict[str, Any], key: str, value: Any, who: str) -> None:
    """Set a dotted key in nested tables; `who` asked for it, should it be impossible."""
    *parents, leaf = key.split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        need(isinstance(table, dict), f"{who}: {parent} is a value, not a table of settings.")
    table[leaf] = value


def build(cls: Any, table: Mapping[str, Any], prefix: str = "") -> Any:
    """An instance of a dataclass from a table, its parts from tables within."""
    hints = get_type_hints(cls)
    for key in table:
        if key == "device":
            told = "pre-training takes a GPU if there is one, all else computes on the processor"
            raise ConfigError(f"there is no key {prefix}device to set: {told}. Delete it.")
        if prefix + key in RENAMED:
            raise ConfigError(f"there is no key {prefix + key} any more: {RENAMED[prefix + key]}.")
        if key not in hints:
            raise ConfigError(str(unknown("key", prefix + key, [prefix + name for name in hints])))
    return cls(**{key: _value(hints[key], value, prefix + key) for key, value in table.items()})


def plain(value: Any) -> Any:
    """The way back: tables, lists and scalars only."""
    if isinstance(value, PrototypeSpec):
        return {"name": value.name, **dict(value.options)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: plain(dict(item) if name.endswith("options") else item) for name, item in fields.items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def sorted_options(key: str, options: Options) -> Options:
    """Options in one order, each a scalar or a tuple of words."""
    for name, item in options:
        words = isinstance(item, tuple) and all(isinstance(word, str) for word in item)
        need(
            words or isinstance(item, (int, float, str)),
            f"{key}.{name} must be a number, text, true/false or a list of text.",
        )
    return tuple(sorted(options))


def _value(hint: Any, value: Any, key: str) -> Any:
    if dataclasses.is_dataclass(hint):
        need(isinstance(value, Mapping), f"{key} must be a table: write [{key}] and its settings below.")
        return build(hint, value, f"{key}.")
    if hint == tuple[PrototypeSpec, ...]:
        return tuple(_prototype(entry) for entry in (value if isinstance(value, (list, tuple)) else [value]))
    if hint == tuple[str, ...]:
        words = isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)
        need(words, f"{key} must be a list of text, not {value!r}.")
        return tuple(value)
    if hint == Options:
        need(isinstance(value, Mapping), f"{key} must be a table of options.")
        return tuple((name, tuple(item) if isinstance(item, list) else item) for name, item in value.items())
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = isinstance(value, hint) and not (hint is int and isinstance(value, bool))
    called = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    need(fits, f"{key} must be {called[hint]}, not {value!r}.")
    return value


def _prototype(entry: Any) -> PrototypeSpec:
    """A name, or a table of a name and the network's own options."""
    if isinstance(entry, str):
        return PrototypeSpec(entry)
    wanted = "a name or a table with a name, such as {name = 'resnet8', width = 16}"
    if not (isinstance(entry, Mapping) and isinstance(entry.get("name"), str)):
        raise ConfigError(f"each prototype is {wanted}, not {entry!r}.")
    options = tuple((key, value) for key, value in entry.items() if key != "name")
    need(
        all(isinstance(value, (int, float, str)) for _, value in options),
        f"the options of a prototype are scalars, not {entry!r}.",
    )
    return PrototypeSpec(entry["name"], options)
