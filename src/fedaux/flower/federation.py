"""`exchange.Federation` over any Flower Grid: orders out, checked replies back one at a time, failures as data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

from fedaux.core.messages import Failure, Order, PrepareOrder, Refusal, Release, Reply, TrainOrder, Update
from fedaux.flower.serialization import MESSAGE_TYPES, MessageError, Serializer, T, deserialize
from fedaux.flower.validation import MAX_RECORDS, InvalidReplyError, validate_reply
from fedaux.privacy.clipping import Bounds

CHUNK = 8  # replies pulled at a time: server memory grows with this, not with the number of clients
POLL = 0.5  # seconds between looks when nothing has arrived

_ANSWERS: dict[type, type[Release] | type[Update]] = {PrepareOrder: Release, TrainOrder: Update}


K = TypeVar("K")


class GridFederation:
    """Clients by their own names; `nodes` says which Flower node speaks for each, `refresh_nodes` who does now."""

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[str, int],
        timeout: float = 3600.0,
        max_records: int = MAX_RECORDS,
        refresh_nodes: Callable[[], Mapping[str, int]] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.grid = grid
        self.nodes = dict(nodes)
        self.timeout = timeout
        self.max_records = max_records
        self.refresh_nodes = refresh_nodes
        self.bounds = bounds  # of the releases that the run's scorer makes

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Send all orders, yield each reply as it comes; what is missing when time is up becomes a `Failure`."""
        if self.refresh_nodes is not None:
            self.nodes = dict(self.refresh_nodes())
        serializer = Serializer()
        here = [order for order in orders if order.client in self.nodes]
        yield from (Failure(order.client, "not connected") for order in orders if order.client not in self.nodes)
        messages = (
            (
                order,
                Message(
                    serializer.serialize(order), self.nodes[order.client], MESSAGE_TYPES[type(order)], ttl=self.timeout
                ),
            )
            for order in here
        )
        for order, message in stream_replies(self.grid, messages, self.timeout):
            if message is None:
                yield Failure(order.client, f"no answer within {self.timeout:g} s")
            else:
                yield self._read(order, message)
            del message  # a reply must not outlive its use

    def _read(self, order: Order, message: Message) -> Reply:
        try:
            reply = read_reply(_ANSWERS[type(order)], message)
            validate_reply(order, reply, self.max_records, self.bounds)
        except (MessageError, InvalidReplyError) as error:
            return Failure(order.client, str(error))
        return reply


def stream_replies(
    grid: Grid, messages: Iterable[tuple[K, Message]], patience: float
) -> Iterator[tuple[K, Message | None]]:
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


def read_reply(kind: type[T], message: Message) -> T:
    """What a reply says, or a `MessageError` with the reason why it says nothing."""
    if message.has_error():
        reason = message.error.reason or ""
        known = reason in set(Refusal)
        raise MessageError(Refusal(reason).description if known else f"error {message.error.code}: {reason}")
    return deserialize(kind, message.content)
