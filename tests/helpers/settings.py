"""Every setting of a run by its dotted key."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from fedaux.config.schema import Config


def leaves(part: Any = Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of a run with its default."""
    for field in dataclasses.fields(part):
        value = (
            field.default_factory()
            if field.default is dataclasses.MISSING
            else field.default
        )
        if dataclasses.is_dataclass(value):
            yield from leaves(type(value), f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value


def nested(key: str, value: Any) -> dict[str, Any]:
    *parents, leaf = key.split(".")
    table: dict[str, Any] = {leaf: value}
    for parent in reversed(parents):
        table = {parent: table}
    return table


LEAVES = dict(leaves())
