"""A configuration as readable TOML: each key below its comment, defaults left out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fedaux.config.methods import find_method
from fedaux.config.parsing import set_key
from fedaux.config.schema import Config


def to_commented_toml(config: Config, header: str, comments: Mapping[str, str]) -> str:
    """TOML of all keys that have a comment or differ from their default, each below its
    comment.
    """
    table, default = config.to_dict(), Config().to_dict()
    for key, value in find_method(config.method).defaults:
        set_key(default, key, value, key)
    parts = [_comment(header)]
    scalars = {
        key: value for key, value in table.items() if not isinstance(value, dict)
    }
    parts.append(_lines("", scalars, default, comments))
    for name, section in table.items():
        if isinstance(section, dict):
            lines = _lines(f"{name}.", section, default[name], comments)
            parts.append(f"[{name}]\n{lines}" if lines or name in comments else "")
    return "\n".join(part for part in parts if part)


def to_complete_toml(config: Config) -> str:
    """TOML of all keys, defaults included."""
    table = config.to_dict()
    keys = [
        f"{name}.{key}"
        for name, part in table.items()
        if isinstance(part, dict)
        for key in part
    ]
    return to_commented_toml(config, "", dict.fromkeys([*table, *keys], ""))


def toml_value(value: Any) -> str:
    """A value as TOML. JSON strings are TOML strings, except for surrogate pairs and
    U+007F.
    """
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{_key(key)} = {toml_value(item)}" for key, item in value.items()
            )
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def _lines(
    prefix: str,
    table: Mapping[str, Any],
    default: Mapping[str, Any],
    comments: Mapping[str, str],
) -> str:
    shown = [
        key
        for key in table
        if prefix + key in comments or table[key] != default.get(key)
    ]
    return "".join(
        f"{_comment(comments.get(prefix + key, ''))}{key} = {toml_value(table[key])}\n"
        for key in shown
    )


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())
