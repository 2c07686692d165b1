"""What a round costs: seconds by phase, and the bytes of all arrays that cross in either direction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fedaux.core.messages import Order


@dataclass
class Costs:
    """Phases may lie within one another; each second is counted once, for the innermost."""

    seconds: dict[str, float] = field(default_factory=dict)
    sent: int = 0
    received: int = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        before, started = sum(self.seconds.values()), time.perf_counter()
        try:
            yield
        finally:
            within = sum(self.seconds.values()) - before
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started - within

    def count_sent(self, orders: Sequence[Order]) -> Sequence[Order]:
        self.sent += sum(map(payload_bytes, orders))
        return orders

    def to_record(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "bytes": {"sent": self.sent, "received": self.received}}


def payload_bytes(message: object) -> int:
    """Bytes of the arrays in a message; its few facts and what the transport adds are not counted."""
    rooms = (value for value in vars(message).values() if isinstance(value, dict))
    return sum(int(array.nbytes) for arrays in rooms for array in arrays.values())
