"""`exchange.Federation` over any Flower Grid: orders out, checked replies back one at a time, failures as data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

from fedaux.core.messages import Failure, Order, PrepareOrder, Refusal, Release, Reply, TrainOrder, Update
from fedaux.flower.serialization import ACTIONS, MessageError, Packer, T, unpack
from fedaux.flower.validation import MAX_RECORDS, Refused, check
from fedaux.privacy.clipping import Bounds

CHUNK = 8  # replies pulled at a time: server memory grows with this, not with the number of clients
POLL = 0.5  # seconds between looks when nothing has arrived

_ANSWERS: dict[type, type[Release] | type[Update]] = {PrepareOrder: Release, TrainOrder: Update}


K = TypeVar("K")


class GridFederation:
    """Clients by their own names; `nodes` says which Flower node speaks for each, `look` who does now."""

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[str, int],
        timeout: float = 3600.0,
        max_records: int = MAX_RECORDS,
        look: Callable[[], Mapping[str, int]] | None = None,
        bounds: Bounds | None = None,
        actions: Mapping[type, str] = ACTIONS,
    ) -> None:
        self.grid = grid
        self.nodes = dict(nodes)
        self.timeout = timeout
        self.max_records = max_records
        self.look = look
        self.bounds = bounds  # of the releases that the run's scorer makes
        self.actions = actions  # the message type of each kind of order

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Send all orders, yield each reply as it comes; what is missing when time is up becomes a `Failure`."""
        if self.look is not None:
            self.nodes = dict(self.look())
        packer = Packer()
        here = [order for order in orders if order.client in self.nodes]
        yield from (Failure(order.client, "not connected") for order in orders if order.client not in self.nodes)
        messages = (
            (order, Message(packer.pack(order), self.nodes[order.client], self.actions[type(order)], ttl=self.timeout))
            for order in here
        )
        for order, message in replies(self.grid, messages, self.timeout):
            if message is None:
                yield Failure(order.client, f"no answer within {self.timeout:g} s")
            else:
                yield self._read(order, message)
            del message  # a reply must not outlive its use

    def _read(self, order: Order, message: Message) -> Reply:
        try:
            reply = read(_ANSWERS[type(order)], message)
            check(order, reply, self.max_records, self.bounds)
        except (MessageError, Refused) as error:
            return Failure(order.client, str(error))
        return reply


def replies(grid: Grid, messages: Iterable[tuple[K, Message]], patience: float) -> Iterator[tuple[K, Message | None]]:
    """Send messages, and give each one's key back with its reply as it comes, or with None when patience is over.

    Only waiting costs patience: our own work on replies does not.
    """
    waiting: dict[str, K] = {}
    for key, message in messages:
        (identity,) = grid.push_messages([message])
        waiting[identity] = key
    arrived = True
    while waiting and (arrived or patience > 0):
        arrived = False
        ids = list(waiting)
        for start in range(0, len(ids), CHUNK):
            for message in grid.pull_messages(ids[start : start + CHUNK]):
                reply_to = message.metadata.reply_to_message_id
                if reply_to in waiting:  # a second reply, or one to nothing we asked, is not for us
                    arrived = True
                    yield waiting.pop(reply_to), message
                del message
        if waiting and not arrived:
            time.sleep(POLL)
            patience -= POLL
    yield from ((key, None) for key in waiting.values())


def read(kind: type[T], message: Message) -> T:
    """What a reply says, or a `MessageError` with the reason why it says nothing."""
    if message.has_error():
        reason = message.error.reason or ""
        known = reason in set(Refusal)
        raise MessageError(Refusal(reason).in_words if known else f"error {message.error.code}: {reason}")
    return unpack(kind, message.content)
