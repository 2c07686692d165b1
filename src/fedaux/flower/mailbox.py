"""Messages on their way to nodes, and their replies as they arrive."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

CHUNK = 8  # replies pulled at a time; server memory is proportional to it, not to the number of clients
POLL_INTERVAL = 0.02  # seconds between two looks for replies; doubled after each in vain, up to
MAX_POLL_INTERVAL = 0.5
# Flower's codes for a message that nobody has answered: it is gone or expired, its node is gone, its app has crashed
LOST = frozenset({3, 5, 8})
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
                if reply_to in self._waiting:  # a second reply, or one to no message of ours, is ignored
                    yield self._waiting.pop(reply_to), message
                del message

    @property
    def unanswered(self) -> list[K]:
        return list(self._waiting.values())


class Patience:
    """Counts the seconds of waiting: the caller's own work on replies takes nothing from them."""

    def __init__(self, timeout: float) -> None:
        self.left, self.waited, self._pause = timeout, 0.0, POLL_INTERVAL

    def wait(self, arrived: bool) -> bool:
        """Sleep for a while unless something has arrived; false when the time is over."""
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
    """Send messages, and yield each one's key with its reply as it arrives, or with None at the timeout."""
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
    """Whether nobody has answered: the node never got the message, or its reply never came."""
    return message.has_error() and message.error.code in LOST
