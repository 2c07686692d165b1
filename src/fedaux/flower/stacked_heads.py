"""Simulated clients that train linear heads together (`client.stacked_heads`), without
messages.

A run of 20 clients is two to five times faster. A client that cannot take part, or
whose work fails, gets its order by message after all: it fails there alone, and for the
reason it would have elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fedaux.client import handlers
from fedaux.client.kept_state import LocalResult
from fedaux.client.secure_sums import Participation
from fedaux.client.site import Site
from fedaux.client.stacked_heads import StackedClient, train_clients
from fedaux.core.failures import attempt
from fedaux.flower.federation import GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.node_settings import open_site
from fedaux.messages import (
    Answer,
    Order,
    Reply,
    SumOrder,
    SumsOrder,
    TrainOrder,
)
from fedaux.methods.summed_update import summed_update

# of features, heads, gradients and moments of the clients that train at once
STACK_BYTES = 2**27


class StackedFederation(GridFederation):
    """A `GridFederation` over an `InProcessGrid` whose clients train heads. Replies
    come in the order of the orders.
    """

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        if not all(is_for_training(order) for order in orders):
            yield from super().ask(orders)
            return
        for chunk in self._chunks(orders):
            results = train_clients([client for _, client in chunk if client])
            for order, client in chunk:
                reply = None
                if client:
                    # if it fails, the client says why when it is asked by message
                    reply = attempt(self._answer, order, client, results[client])
                if reply:
                    yield self.validated(order, reply)
                else:
                    yield from super().ask([order])

    def _answer(
        self, order: Order, client: StackedClient, result: LocalResult
    ) -> Answer:
        """Return the client's reply: its update, or in a secure sum the masked vector
        with its contribution.
        """
        if not isinstance(order, SumOrder):
            return client.update(result)

        def contribution(
            kept_order: SumsOrder | TrainOrder, site: Site
        ) -> NDArray[np.int64]:
            return summed_update(
                client.task.order, client.update(result), client.task.hooks
            )

        return handlers.masked(order, client.task.site, contribution)

    def _chunks(
        self, orders: Sequence[Order]
    ) -> Iterator[list[tuple[Order, StackedClient | None]]]:
        """Consecutive orders whose clients fit into `STACK_BYTES` together."""
        chunk: list[tuple[Order, StackedClient | None]] = []
        size = 0
        for order in orders:
            client = attempt(self._open, order)
            chunk.append((order, client))
            size += client.nbytes if client else 0
            if size >= STACK_BYTES:
                yield chunk
                chunk = []
                size = 0
        yield chunk

    def _open(self, order: Order) -> StackedClient | None:
        grid = cast(InProcessGrid, self.grid)
        site = open_site(grid.context(self.nodes[order.client]))
        if isinstance(order, SumOrder):
            order = Participation.of(order, site).kept_order()
        if not isinstance(order, TrainOrder):
            return None
        return StackedClient.open(order, site)


def is_for_training(order: Order) -> bool:
    """Whether clients may train to answer this order: separately, or when a secure sum
    asks for its vectors.
    """
    if isinstance(order, SumOrder):
        return order.step == "masked"
    return isinstance(order, TrainOrder) and not order.sum
