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

from fedaux.config.sections import MAX_RECORDS
from fedaux.core.event_log import printable
from fedaux.core.failures import NO_ANSWER, Failure, Refusal
from fedaux.flower.serialization import (
    MessageError,
    Serializer,
    T,
    deserialize,
    reply_group,
)
from fedaux.flower.validation import validate_reply
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
GONE_CODES = frozenset({3, 5, 8})
REFRESH_INTERVAL = 2.0  # seconds between two looks for nodes that come back
K = TypeVar("K")


class Mailbox(Generic[K]):
    """Messages that wait for a reply, each under a key."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._waiting: dict[str, K] = {}

    def send(self, key: K, message: Message) -> None:
        (identity,) = self._grid.push_messages([message])
        self._waiting[identity] = key

    def look(self) -> Iterator[tuple[K, Message]]:
        """The replies that have arrived. More messages may be sent in between."""
        ids = list(self._waiting)
        for start in range(0, len(ids), CHUNK):
            chunk = ids[start : start + CHUNK]
            for message in self._grid.pull_messages(chunk):
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
        self.left = timeout
        self.waited = 0.0
        self._pause = POLL_INTERVAL

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
        self.left -= self._pause
        self.waited += self._pause
        self._pause = min(2 * self._pause, MAX_POLL_INTERVAL)
        return True


def stream_replies(
    grid: Grid, messages: Iterable[tuple[K, Message]], timeout: float
) -> Iterator[tuple[K, Message | None]]:
    """Send messages, and yield each one's key with its reply as it arrives, or with
    None at the timeout.
    """
    mailbox = Mailbox[K](grid)
    patience = Patience(timeout)
    for key, message in messages:
        mailbox.send(key, message)
    arrived = True
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
    return message.has_error() and message.error.code in GONE_CODES


@dataclass(frozen=True)
class Pending:
    """An order that is to be sent, for the first time or again.

    Attributes:
        order: The order.
        reason: Why it is not on its way.
        since: How long replies were waited for when it was put here, in seconds.
    """

    order: Order
    reason: str = "not connected"
    since: float = 0.0

    def failure(self) -> Failure:
        return Failure(self.order.client, self.reason, NO_ANSWER)


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
        """Send all orders and yield each reply as it arrives. One that is missing in
        the end becomes a `Failure`.
        """
        mailbox = Mailbox[Order](self.grid)
        patience = Patience(self.timeout)
        serializer = Serializer()
        unsent = [Pending(order) for order in orders]
        attempts = Counter[Order]()
        next_refresh = 0.0
        arrived = True
        while (unsent or mailbox.unanswered) and patience.wait(arrived):
            if unsent and patience.waited >= next_refresh:
                self._refresh()
                next_refresh = patience.waited + REFRESH_INTERVAL
            ready, unsent, failures = self._sort(unsent, patience.waited)
            for pending in ready:
                attempts[pending.order] += 1
                message = self._message(serializer, pending.order, patience.left)
                mailbox.send(pending.order, message)
            yield from failures
            arrived = False
            for order, message in mailbox.look():
                arrived = True
                if is_lost(message) and attempts[order] <= self.retries:
                    reason = describe_error(message)
                    unsent.append(Pending(order, reason, since=patience.waited))
                    # its client may be at another node by now
                    next_refresh = patience.waited
                else:
                    yield self._read(order, message)
                del message
        for pending in unsent:
            yield pending.failure()
        late = f"no answer within {self.timeout:g} s"
        for order in mailbox.unanswered:
            yield Failure(order.client, late, NO_ANSWER)

    def _sort(
        self, unsent: Sequence[Pending], now: float
    ) -> tuple[list[Pending], list[Pending], list[Failure]]:
        """Return the orders whose clients are connected, those whose clients may still
        come back, and the failures of the others.
        """
        ready: list[Pending] = []
        waiting: list[Pending] = []
        failures: list[Failure] = []
        for pending in unsent:
            client = pending.order.client
            if client in self.nodes:
                ready.append(pending)
            elif self._is_waited_for(client, now - pending.since):
                waiting.append(pending)
            else:
                # the next round does not wait for it, until it is seen again
                self._expected.discard(client)
                failures.append(pending.failure())
        return ready, waiting, failures

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
        return Message(
            serializer.serialize(order),
            self.nodes[order.client],
            self.message_types[type(order)],
            ttl=max(1.0, ttl),
            group_id=reply_group(largest_reply(order)),
        )

    def _read(self, order: Order, message: Message) -> Reply:
        if message.has_error():
            return Failure(order.client, describe_error(message), error_kind(message))
        try:
            answer = deserialize(answer_type(order), message.content)
        except MessageError as error:
            return Failure(order.client, printable(str(error)))
        return self.validated(order, answer)

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
    """Say why there is no reply. A client's own words are not trusted to be fit for a
    terminal.
    """
    reason = message.error.reason or ""
    if reason in set(Refusal):
        return Refusal(reason).description
    return printable(f"error {message.error.code}: {reason}")


def error_kind(message: Message) -> str:
    """Return the kind of a `Failure`: no answer, or the client's own `Refusal`."""
    if is_lost(message):
        return NO_ANSWER
    reason = message.error.reason or ""
    return reason if reason in set(Refusal) else Refusal.FAILED
