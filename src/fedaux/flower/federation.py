"""`core.messages.Federation` over any Flower Grid: orders out, validated replies streamed back, failures as data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

from fedaux.core.messages import (
    Failure,
    Order,
    PrepareOrder,
    Refusal,
    Release,
    Reply,
    Sums,
    SumsOrder,
    TrainOrder,
    Update,
)
from fedaux.flower.serialization import MESSAGE_TYPES, MessageError, Serializer, T, deserialize
from fedaux.flower.validation import MAX_RECORDS, InvalidReplyError, validate_reply
from fedaux.privacy.clipping import Bounds

CHUNK = 8  # replies pulled at a time; server memory is proportional to it, not to the number of clients
POLL_INTERVAL = 0.02  # seconds between two looks for replies; doubled after each in vain, up to
MAX_POLL_INTERVAL = 0.5

_REPLY_TYPES: dict[type, type[Release] | type[Sums] | type[Update]] = {
    PrepareOrder: Release,
    SumsOrder: Sums,
    TrainOrder: Update,
}
K = TypeVar("K")


class GridFederation:
    """Clients by name: `nodes` maps each to its Flower node, `refresh_nodes` returns the current map."""

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[str, int],
        timeout: float = 3600.0,
        max_records: int = MAX_RECORDS,
        refresh_nodes: Callable[[], Mapping[str, int]] | None = None,
        bounds: Bounds | None = None,
        message_types: Mapping[type, str] = MESSAGE_TYPES,
    ) -> None:
        self.grid = grid
        self.nodes = dict(nodes)
        self.timeout = timeout
        self.max_records = max_records
        self.refresh_nodes = refresh_nodes
        self.bounds = bounds  # of the releases that the run's scorer makes
        self.message_types = message_types

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Send all orders and yield each reply as it arrives; a reply missing at the timeout becomes a `Failure`."""
        if self.refresh_nodes is not None:
            self.nodes = dict(self.refresh_nodes())
        serializer = Serializer()
        connected = [order for order in orders if order.client in self.nodes]
        yield from (Failure(order.client, "not connected") for order in orders if order.client not in self.nodes)
        messages = (
            (
                order,
                Message(
                    serializer.serialize(order),
                    self.nodes[order.client],
                    self.message_types[type(order)],
                    ttl=self.timeout,
                ),
            )
            for order in connected
        )
        for order, message in stream_replies(self.grid, messages, self.timeout):
            if message is None:
                yield Failure(order.client, f"no answer within {self.timeout:g} s")
            else:
                yield self._read(order, message)
            del message  # frees the reply before the next one is read

    def _read(self, order: Order, message: Message) -> Reply:
        try:
            return self._validate(order, read_reply(_REPLY_TYPES[type(order)], message))
        except MessageError as error:
            return Failure(order.client, str(error))

    def _validate(self, order: Order, reply: Release | Sums | Update) -> Reply:
        try:
            validate_reply(order, reply, self.max_records, self.bounds)
        except InvalidReplyError as error:
            return Failure(order.client, str(error))
        return reply


def stream_replies(
    grid: Grid, messages: Iterable[tuple[K, Message]], timeout: float
) -> Iterator[tuple[K, Message | None]]:
    """Send messages, and yield each one's key with its reply as it arrives, or with None at the timeout.

    Only waiting counts towards the timeout, not the caller's work on replies.
    """
    waiting: dict[str, K] = {}
    for key, message in messages:
        (identity,) = grid.push_messages([message])
        waiting[identity] = key
    arrived, pause = True, POLL_INTERVAL
    while waiting and (arrived or timeout > 0):
        arrived = False
        ids = list(waiting)
        for start in range(0, len(ids), CHUNK):
            for message in grid.pull_messages(ids[start : start + CHUNK]):
                reply_to = message.metadata.reply_to_message_id
                if reply_to in waiting:  # a second reply, or one to no message of ours, is ignored
                    arrived = True
                    yield waiting.pop(reply_to), message
                del message
        if arrived:
            pause = POLL_INTERVAL
        elif waiting:
            time.sleep(pause)
            timeout, pause = timeout - pause, min(2 * pause, MAX_POLL_INTERVAL)
    yield from ((key, None) for key in waiting.values())


def read_reply(kind: type[T], message: Message) -> T:
    """The reply's content, or a `MessageError` with the reason why it has none."""
    if message.has_error():
        reason = message.error.reason or ""
        known = reason in set(Refusal)
        raise MessageError(Refusal(reason).description if known else f"error {message.error.code}: {reason}")
    return deserialize(kind, message.content)
