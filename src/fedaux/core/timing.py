"""Cost of a round: seconds by phase, and bytes of arrays sent and received."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Costs:
    """Measures the cost of a round. Phases may be nested. Each second counts once, for
    the innermost phase.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    sent: int = 0
    received: int = 0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        before = sum(self.seconds.values())
        start = time.perf_counter()
        try:
            yield
        finally:
            nested = sum(self.seconds.values()) - before
            spent = time.perf_counter() - start - nested
            self.seconds[name] = self.seconds.get(name, 0.0) + spent


def payload_bytes(message: object) -> int:
    """Count the bytes of the arrays in a message, without its scalars and the
    transport's overhead.
    """
    groups = (value for value in vars(message).values() if isinstance(value, dict))
    return sum(int(array.nbytes) for arrays in groups for array in arrays.values())
