"""A federation whose traffic counts as a cost of the current round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedaux.core.timing import Costs, payload_bytes
from fedaux.messages import Federation, Order, Reply, Subtotal


@dataclass(frozen=True)
class CountedFederation:
    """`federation`, to the letter. The bytes of all orders and replies are added to
    `costs`.
    """

    federation: Federation
    costs: Costs

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        self.costs.sent += sum(map(payload_bytes, orders))
        for reply in self.federation.ask(orders):
            if isinstance(reply, Subtotal):  # a region has counted what it received
                self.costs.received += reply.received
            else:
                self.costs.received += payload_bytes(reply)
            yield reply
            del reply  # the next one is waited for without it
