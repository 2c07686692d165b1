"""Settings as TOML that a person can read: each key below a note, defaults that say nothing left out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fedaux.config.schema import Config


def commented(config: Config, head: str, notes: Mapping[str, str]) -> str:
    """TOML of all keys that have a note or differ from their default, each below its note."""
    table, default = config.to_dict(), Config().to_dict()
    parts = [_comment(head)]
    scalars = {key: value for key, value in table.items() if not isinstance(value, dict)}
    parts.append(_lines("", scalars, default, notes))
    for name, section in table.items():
        if isinstance(section, dict):
            lines = _lines(f"{name}.", section, default[name], notes)
            parts.append(f"[{name}]\n{lines}" if lines or name in notes else "")
    return "\n".join(part for part in parts if part)


def complete(config: Config) -> str:
    """TOML of all keys."""
    table = config.to_dict()
    keys = [f"{name}.{key}" for name, part in table.items() if isinstance(part, dict) for key in part]
    return commented(config, "", dict.fromkeys([*table, *keys], ""))


def toml_value(value: Any) -> str:
    """One value as TOML. Its strings are JSON's, as long as no character is written as two surrogates."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def _lines(prefix: str, table: Mapping[str, Any], default: Mapping[str, Any], notes: Mapping[str, str]) -> str:
    shown = [key for key in table if prefix + key in notes or table[key] != default.get(key)]
    return "".join(f"{_comment(notes.get(prefix + key, ''))}{key} = {toml_value(table[key])}\n" for key in shown)


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())
