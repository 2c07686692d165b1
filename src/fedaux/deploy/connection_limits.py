"""What anybody may do to the SuperLink before they have shown a key: few connections, quick headers, small bodies."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
from collections import Counter
from typing import ClassVar

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

MAX_BODY = 2**26  # bytes of a request: Flower cuts arrays into objects of 5 MB
MAX_CONNECTIONS = 100  # at a time from one other machine
REQUEST_TIMEOUT = 30.0  # seconds in which a request's headers must be there, and then at least some of its body


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
