"""The specification of a prototype: its name and options."""

from __future__ import annotations

import json
from dataclasses import dataclass

Option = int | float | str | bool


@dataclass(frozen=True)
class PrototypeSpec:
    """A prototype by name and options. Clients with equal specs share parameters."""

    name: str
    options: tuple[tuple[str, Option], ...] = ()

    def __post_init__(self) -> None:
        keys = [key for key, _ in self.options]
        if len(set(keys)) < len(keys):
            raise ValueError(f"{self.label} gives an option twice. Keep one of them.")
        # the order does not matter for equality
        object.__setattr__(self, "options", tuple(sorted(self.options)))

    @classmethod
    def of(cls, name: str, **options: Option) -> PrototypeSpec:
        """`PrototypeSpec.of("resnet8", width=16, norm="group")`."""
        return cls(name, tuple(options.items()))

    def to_json(self) -> str:
        return json.dumps([self.name, dict(self.options)])

    @classmethod
    def from_json(cls, text: str) -> PrototypeSpec:
        name, options = json.loads(text)
        return cls(name, tuple(options.items()))

    @property
    def label(self) -> str:
        """Name and options as text: `resnet8(norm=group, width=16)`."""
        options = ", ".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name}({options})" if options else self.name
