"""`messages.Federation` over any Flower Grid: orders out, validated replies streamed
back, failures as data.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

from fedaux.core.event_log import printable
from fedaux.core.failures import NO_ANSWER, Failure, Refusal
from fedaux.flower.serialization import (
    MessageError,
    Serializer,
    T,
    deserialize,
    reply_group,
)
from fedaux.flower.validation import MAX_RECORDS, validate_reply
from fedaux.messages import (
    ORDERS,
    Answer,
    InvalidReplyError,
    Order,
    Reply,
    answer_type,
    largest_reply,
)
from fedaux.privacy.mechanism import Bounds

# replies pulled at a time; server memory is proportional to it, not to the number of
# clients
CHUNK = 8
# seconds between two looks for replies; doubled after each in vain, up to
POLL_INTERVAL = 0.02
MAX_POLL_INTERVAL = 0.5
# Flower's codes for a message without an answer: it is gone or expired, its node is
# gone, its app has crashed
LOST = frozenset({3, 5, 8})
REFRESH_INTERVAL = 2.0  # seconds between two looks for nodes that come back
K = TypeVar("K")


class Mailbox(Generic[K]):
    """Messages that wait for a reply, each under a key."""

    def __init__(self, grid: Grid) -> None:
        self._grid, self._waiting = grid, dict[str, K]()

    def send(self, key: K, message: Message) -> None:
        (identity,) = self._grid.push_messages([message])
        self._waiting[identity] = key

    def look(self) -> Iterator[tuple[K, Message]]:
        """The replies that have arrived. More messages may be sent in between."""
        ids = list(self._waiting)
        for start in range(0, len(ids), CHUNK):
            for message in self._grid.pull_messages(ids[start : start + CHUNK]):
                reply_to = message.metadata.reply_to_message_id
                # a second reply, or one to no message of ours, is ignored
                if reply_to in self._waiting:
                    yield self._waiting.pop(reply_to), message
                del message

    @property
    def unanswered(self) -> list[K]:
        return list(self._waiting.values())


class Patience:
    """Counts the seconds of waiting: the caller's own work on replies takes nothing
    from them.
    """

    def __init__(self, timeout: float) -> None:
        self.left, self.waited, self._pause = timeout, 0.0, POLL_INTERVAL

    def wait(self, arrived: bool) -> bool:
        """Sleep for a while unless something has arrived; false when the time is
        over.
        """
        if arrived:
            self._pause = POLL_INTERVAL
            return True
        if self.left <= 0:
            return False
        time.sleep(self._pause)
        self.left, self.waited = self.left - self._pause, self.waited + self._pause
        self._pause = min(2 * self._pause, MAX_POLL_INTERVAL)
        return True


def stream_replies(
    grid: Grid, messages: Iterable[tuple[K, Message]], timeout: float
) -> Iterator[tuple[K, Message | None]]:
    """Send messages, and yield each one's key with its reply as it arrives, or with
    None at the timeout.
    """
    mailbox, patience, arrived = Mailbox[K](grid), Patience(timeout), True
    for key, message in messages:
        mailbox.send(key, message)
    while mailbox.unanswered and patience.wait(arrived):
        arrived = False
        for pair in mailbox.look():
            arrived = True
            yield pair
            del pair
    yield from ((key, None) for key in mailbox.unanswered)


def is_lost(message: Message) -> bool:
    """Whether there is no answer: the node never got the message, or its reply never
    came.
    """
    return message.has_error() and message.error.code in LOST


@dataclass(eq=False)
class GridFederation:
    """Clients by name: `nodes` maps each to its Flower node, `refresh_nodes` returns
    the current map.

    An order without an answer is sent again, up to `retries` times: the client has
    stored what it made of it, and the same order gets the same reply. A client that is
    gone has `reconnect_timeout` seconds to come back. `bounds` are those of the
    releases that the run's scorer makes.
    """

    grid: Grid
    nodes: Mapping[str, int]
    timeout: float = 3600.0
    max_records: int = MAX_RECORDS
    refresh_nodes: Callable[[], Mapping[str, int]] | None = None
    bounds: Bounds | None = None
    message_types: Mapping[type, str] = field(default_factory=lambda: ORDERS)
    retries: int = 0
    reconnect_timeout: float = 0.0

    def __post_init__(self) -> None:
        # clients that were there, and are waited for if they go
        self._expected = set(self.nodes)

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Send all orders and yield each reply as it arrives; one that is missing in
        the end becomes a `Failure`.
        """
        mailbox, patience, serializer = (
            Mailbox[Order](self.grid),
            Patience(self.timeout),
            Serializer(),
        )
        # including orders to resend: why, and since when
        unsent = dict.fromkeys(orders, ("not connected", 0.0))
        sent, next_look, arrived = Counter[Order](), 0.0, True
        while (unsent or mailbox.unanswered) and patience.wait(arrived):
            if unsent and patience.waited >= next_look:
                self._refresh()
                next_look = patience.waited + REFRESH_INTERVAL
            gone = list[Failure]()
            for order, (reason, since) in list(unsent.items()):
                if order.client in self.nodes:
                    sent[order] += 1
                    mailbox.send(order, self._message(serializer, order, patience.left))
                elif self._is_waited_for(order.client, patience.waited - since):
                    continue
                else:
                    # the next round does not wait for it, until it is seen again
                    self._expected.discard(order.client)
                    gone.append(Failure(order.client, reason, NO_ANSWER))
                del unsent[order]
            yield from gone
            arrived = False
            for order, message in mailbox.look():
                arrived = True
                if is_lost(message) and sent[order] <= self.retries:
                    unsent[order], next_look = (
                        (describe_error(message), patience.waited),
                        patience.waited,
                    )
                else:
                    yield self._read(order, message)
                del message
        late = f"no answer within {self.timeout:g} s"
        yield from (
            Failure(order.client, reason, NO_ANSWER)
            for order, (reason, _) in unsent.items()
        )
        yield from (
            Failure(order.client, late, NO_ANSWER) for order in mailbox.unanswered
        )

    def _refresh(self) -> None:
        if self.refresh_nodes is not None:
            self.nodes = self.refresh_nodes()
            self._expected |= self.nodes.keys()

    def _is_waited_for(self, client: str, seconds: float) -> bool:
        """Whether a client that has been gone for so long may still come back."""
        return (
            client in self._expected
            and bool(self.retries)
            and seconds < self.reconnect_timeout
        )

    def _message(self, serializer: Serializer, order: Order, ttl: float) -> Message:
        kind, node = self.message_types[type(order)], self.nodes[order.client]
        group = reply_group(largest_reply(order))
        return Message(
            serializer.serialize(order), node, kind, ttl=max(1.0, ttl), group_id=group
        )

    def _read(self, order: Order, message: Message) -> Reply:
        if message.has_error():
            return Failure(order.client, describe_error(message), error_kind(message))
        try:
            return self.validated(
                order, deserialize(answer_type(order), message.content)
            )
        except MessageError as error:
            return Failure(order.client, printable(str(error)))

    def validated(self, order: Order, reply: Answer) -> Reply:
        """The reply, or a `Failure` with the reason why it must not be used."""
        try:
            validate_reply(order, reply, self.max_records, self.bounds)
        except InvalidReplyError as error:
            return Failure(order.client, printable(str(error)))
        return reply


def read_reply(kind: type[T], message: Message) -> T:
    """The reply's content, or a `MessageError` with the reason why it has none."""
    if message.has_error():
        raise MessageError(describe_error(message))
    return deserialize(kind, message.content)


def describe_error(message: Message) -> str:
    """Say why there is no reply; a client's own words are not trusted to be fit for a
    terminal.
    """
    reason = message.error.reason or ""
    if reason in set(Refusal):
        return Refusal(reason).description
    return printable(f"error {message.error.code}: {reason}")


def error_kind(message: Message) -> str:
    """Return the kind of a `Failure`: no answer, or the client's own `Refusal`."""
    reason = message.error.reason or ""
    return (
        NO_ANSWER
        if is_lost(message)
        else reason
        if reason in set(Refusal)
        else Refusal.FAILED
    )
