"""A federation that says what it asks each client for, and what each answers, to whoever watches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedaux.core.messages import (
    Account,
    Failure,
    Federation,
    Order,
    PrepareOrder,
    Reply,
    Subtotal,
    SumsOrder,
    TrainOrder,
)
from fedaux.core.progress import OnProgress, OrdersSent, ReplyReceived, Task
from fedaux.core.timing import payload_bytes

TASKS: dict[type[Order], Task] = {PrepareOrder: "release", SumsOrder: "sums", TrainOrder: "train"}


@dataclass(frozen=True)
class ReportingFederation:
    """`federation`, to the letter, with an event for all orders and one for every reply."""

    federation: Federation
    on_progress: OnProgress

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """All orders of one call are of one kind."""
        if not orders:
            return
        task, round_ = TASKS[type(orders[0])], getattr(orders[0], "round", None)
        clients = tuple(order.client for order in orders)
        self.on_progress(OrdersSent(task, clients, round_, sum(map(payload_bytes, orders))))
        for reply in self.federation.ask(orders):
            if not isinstance(reply, Subtotal):  # which is no client's
                self.on_progress(_received(task, reply))
            yield reply
            del reply  # the next one is waited for without it


def _received(task: Task, reply: Reply) -> ReplyReceived:
    assert not isinstance(reply, Subtotal)
    if isinstance(reply, Failure):
        return ReplyReceived(reply.client, task, 0, failure=reply)
    return ReplyReceived(reply.client, task, payload_bytes(reply), Account.from_json(reply.account))
