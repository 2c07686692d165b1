"""A network by name and options, as a configuration names it."""

from __future__ import annotations

import json
from dataclasses import dataclass

Option = int | float | str | bool


@dataclass(frozen=True)
class PrototypeSpec:
    """A prototype by name and options; clients whose specs are equal, options in the same order, share parameters."""

    name: str
    options: tuple[tuple[str, Option], ...] = ()

    def __post_init__(self) -> None:
        keys = [key for key, _ in self.options]
        if len(set(keys)) < len(keys):
            raise ValueError(f"{self.label} gives an option twice; keep one of them")
        object.__setattr__(self, "options", tuple(sorted(self.options)))  # one order, so that equal networks are equal

    @classmethod
    def of(cls, name: str, **options: Option) -> PrototypeSpec:
        """`PrototypeSpec.of("resnet8", width=16, norm="group")`."""
        return cls(name, tuple(options.items()))

    def to_json(self) -> str:
        return json.dumps([self.name, dict(self.options)])

    @classmethod
    def from_json(cls, text: str) -> PrototypeSpec:
        name, options = json.loads(text)
        return cls.of(name, **options)

    @property
    def label(self) -> str:
        """Readable and complete, for tables: `resnet8(norm=group, width=16)`."""
        return (
            f"{self.name}({', '.join(f'{key}={value}' for key, value in self.options)})" if self.options else self.name
        )
