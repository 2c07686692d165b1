"""What anybody may do to the SuperLink before they have shown a key: few connections, quick headers, small bodies.

`serve` is `uvicorn.run` under these limits.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

MAX_BODY = 2**26  # bytes of a request: Flower cuts arrays into objects of 5 MB
MAX_CONNECTIONS = 100  # at a time from one other machine, and new ones in a burst
CONNECTION_RATE = 5.0  # new ones a second from one other machine, in the long run: a site keeps its own open
REQUEST_TIMEOUT = 30.0  # seconds in which a request's headers must be there, and then at least some of its body


def serve(app: Any, **options: Any) -> None:
    """Sites are whom the connection comes from, whatever the environment says about proxies."""
    pinned = {"http": LimitedProtocol, "loop": "asyncio", "proxy_headers": False, "forwarded_allow_ips": ""}
    config = uvicorn.Config(app, **{**options, **pinned})
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[LimitedListener.of(config.bind_socket())])
    if not server.started:
        sys.exit(1)


class LimitedListener(socket.socket):
    """Hangs up on a machine that connects too often, before TLS: the handshake is what costs the server most."""

    rate: ConnectionRate

    @classmethod
    def of(cls, bound: socket.socket) -> LimitedListener:
        made = cls(fileno=bound.detach())
        made.rate = ConnectionRate()
        made.listen()  # who calls while the app starts is kept waiting, not refused
        return made

    def accept(self) -> tuple[socket.socket, Any]:
        made, address = super().accept()
        if _is_loopback(address[0]) or self.rate.allows(address[0]):
            return made, address
        made.close()
        raise ConnectionAbortedError(f"too many connections from {address[0]}")  # asyncio goes on to the next


class ConnectionRate:
    """A token bucket for each address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.buckets = clock, dict[str, tuple[float, float]]()  # tokens, and when they were counted

    def allows(self, address: str) -> bool:
        if len(self.buckets) > 10_000:  # who has so many addresses is not stopped by counting one
            self.buckets.clear()
        now = self.clock()
        tokens, counted = self.buckets.get(address, (MAX_CONNECTIONS, now))
        tokens = min(MAX_CONNECTIONS, tokens + (now - counted) * CONNECTION_RATE)
        allowed = tokens >= 1
        self.buckets[address] = (tokens - allowed, now)
        return allowed


class BodyLimitMiddleware:
    """ASGI middleware: a body that is too long is refused by its header, or else read no further."""

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY) -> None:
        self.app, self.limit = app, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self.limit:
            await PlainTextResponse(f"more than {self.limit} bytes", 413)(scope, receive, send)
            return
        left = self.limit

        async def limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            return message if left >= 0 else {"type": "http.disconnect"}

        await self.app(scope, limited, send)


class LimitedProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """Uvicorn's, with a cap on connections from one address, and no patience with those that send nothing."""

    by_address: ClassVar[Counter[str]] = Counter()
    _peer, _received, _before = "", 0, -1
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        self._peer = name[0] if name else ""
        self.by_address[self._peer] += 1
        if self.by_address[self._peer] > MAX_CONNECTIONS and not _is_loopback(self._peer):
            transport.close()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.by_address[self._peer] -= 1
        if self.by_address[self._peer] <= 0:
            del self.by_address[self._peer]
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Uvicorn would read, and throw away, all of a body that has been answered already: with a 413, for one."""
        self._received += len(data)
        super().data_received(data)
        if self.cycle is not None and self.cycle.response_complete and self.cycle.more_body:
            self.transport.abort()

    def _watch(self) -> None:
        """Close a connection whose request does not arrive: no headers yet, or a body that has stopped growing."""
        headers_missing = self.cycle is None and self._before >= 0
        body_missing = self.cycle is not None and self.cycle.more_body and self._received == self._before
        if headers_missing or body_missing:
            self.transport.close()
            return
        self._before = self._received
        self._timer = self.loop.call_later(REQUEST_TIMEOUT, self._watch)


def raise_file_limit() -> None:
    """As many open files as this process may have: each connection is one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
