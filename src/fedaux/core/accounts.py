"""What a client says of its own privacy account in every reply."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """A client's running total: ε of all its private releases and training, in this
    run and all others.
    """

    epsilon: float  # an upper bound at `delta`; ∞ if any noise was seeded
    delta: float
    adjacency: str
    unit: str
    # in the client's account; the server returns the number as `known_entries`
    entries: int
    # of `entries` by the client, which alone can check it; the server returns it as
    # well
    signature: str = ""

    def to_json(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_json(cls, text: str) -> Account:
        return cls(**json.loads(text))
