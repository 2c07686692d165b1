"""`core.messages.Federation` over any Flower Grid: orders out, validated replies streamed back, failures as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from fedaux.core.messages import (
    NO_ANSWER,
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
from fedaux.flower.mailbox import Mailbox, Patience, is_lost
from fedaux.flower.serialization import MESSAGE_TYPES, MessageError, Serializer, T, deserialize
from fedaux.flower.validation import MAX_RECORDS, InvalidReplyError, validate_reply
from fedaux.privacy.mechanism import Bounds

REFRESH_INTERVAL = 2.0  # seconds between two looks for nodes that come back

_REPLY_TYPES: dict[type, type[Release] | type[Sums] | type[Update]] = {
    PrepareOrder: Release,
    SumsOrder: Sums,
    TrainOrder: Update,
}


class GridFederation:
    """Clients by name: `nodes` maps each to its Flower node, `refresh_nodes` returns the current map.

    An order without an answer is sent again, up to `retries` times: the client has stored what it made of it, and the
    same order gets the same reply. A client that is gone has `reconnect_timeout` seconds to come back.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[str, int],
        timeout: float = 3600.0,
        max_records: int = MAX_RECORDS,
        refresh_nodes: Callable[[], Mapping[str, int]] | None = None,
        bounds: Bounds | None = None,
        message_types: Mapping[type, str] = MESSAGE_TYPES,
        retries: int = 0,
        reconnect_timeout: float = 0.0,
    ) -> None:
        self.grid = grid
        self.nodes = dict(nodes)
        self.timeout = timeout
        self.max_records = max_records
        self.refresh_nodes = refresh_nodes
        self.bounds = bounds  # of the releases that the run's scorer makes
        self.message_types = message_types
        self.retries, self.reconnect_timeout = retries, reconnect_timeout
        self._expected = set(nodes)  # clients that were there, and are waited for if they go

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        """Send all orders and yield each reply as it arrives; one that is missing in the end becomes a `Failure`."""
        mailbox, patience = Mailbox[Order](self.grid), Patience(self.timeout)
        unsent, sent, serializer = Unsent(orders, self.reconnect_timeout), Counter[Order](), Serializer()
        arrived = True
        while (unsent or mailbox.unanswered) and patience.wait(arrived):
            if unsent.due(patience.waited):
                self._refresh()
            for order in unsent.of(self.nodes):
                sent[order] += 1
                mailbox.send(order, self._message(serializer, order, patience.left))
            yield from self._give_up(unsent, patience.waited)
            arrived = False
            for order, message in mailbox.look():
                arrived = True
                if is_lost(message) and sent[order] <= self.retries:
                    unsent.add(order, describe_error(message), patience.waited)
                else:
                    yield self._read(order, message)
                del message
        late = f"no answer within {self.timeout:g} s"
        yield from (Failure(order.client, reason, NO_ANSWER) for order, reason in unsent.reasons.items())
        yield from (Failure(order.client, late, NO_ANSWER) for order in mailbox.unanswered)

    def _refresh(self) -> None:
        if self.refresh_nodes is not None:
            self.nodes = dict(self.refresh_nodes())
            self._expected |= self.nodes.keys()

    def _message(self, serializer: Serializer, order: Order, ttl: float) -> Message:
        kind, node = self.message_types[type(order)], self.nodes[order.client]
        return Message(serializer.serialize(order), node, kind, ttl=max(1.0, ttl))

    def _give_up(self, unsent: Unsent, waited: float) -> Iterator[Failure]:
        """On clients that do not come back. The next round does not wait for them, until they are seen again."""
        for order in list(unsent.reasons):
            if order.client not in self._expected or not self.retries or unsent.overdue(order, waited):
                self._expected.discard(order.client)
                yield Failure(order.client, unsent.pop(order), NO_ANSWER)

    def _read(self, order: Order, message: Message) -> Reply:
        if message.has_error():
            return Failure(order.client, describe_error(message), error_kind(message))
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


class Unsent:
    """Orders that are still to be sent, or to be sent again, and since when and why."""

    def __init__(self, orders: Sequence[Order], reconnect_timeout: float) -> None:
        self.reasons = dict.fromkeys(orders, "not connected")
        self._since = dict.fromkeys(orders, 0.0)
        self._timeout, self._next_look = reconnect_timeout, 0.0

    def __bool__(self) -> bool:
        return bool(self.reasons)

    def add(self, order: Order, reason: str, now: float) -> None:
        self.reasons[order], self._since[order], self._next_look = reason, now, now

    def pop(self, order: Order) -> str:
        return self.reasons.pop(order)

    def due(self, now: float) -> bool:
        """Whether to look again which nodes are there."""
        due = bool(self.reasons) and now >= self._next_look
        if due:
            self._next_look = now + REFRESH_INTERVAL
        return due

    def of(self, connected: Container[str]) -> list[Order]:
        """Those of connected clients, which are taken out."""
        ready = [order for order in self.reasons if order.client in connected]
        for order in ready:
            self.pop(order)
        return ready

    def overdue(self, order: Order, now: float) -> bool:
        return now >= self._since[order] + self._timeout


def read_reply(kind: type[T], message: Message) -> T:
    """The reply's content, or a `MessageError` with the reason why it has none."""
    if message.has_error():
        raise MessageError(describe_error(message))
    return deserialize(kind, message.content)


def describe_error(message: Message) -> str:
    reason = message.error.reason or ""
    return Refusal(reason).description if reason in set(Refusal) else f"error {message.error.code}: {reason}"


def error_kind(message: Message) -> str:
    """Of a `Failure`: nobody answered, or the client's own `Refusal`."""
    reason = message.error.reason or ""
    return NO_ANSWER if is_lost(message) else reason if reason in set(Refusal) else Refusal.FAILED
