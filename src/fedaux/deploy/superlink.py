"""`flower-superlink` with the same options, but only the fleet API open to the network,
and that under limits.

Flower serves three APIs at one port: the fleet API for sites, which authenticate by
their keys; the control API, which starts apps and registers keys; and the runtime API
of its own processes. Its open edition does not authenticate callers of the control API,
so anyone who reaches the port could start an app, whose code would run here. Therefore
all but the fleet API answers only callers on this machine. Before they have shown a
key, callers get few connections, must send their headers quickly, and can send small
bodies only.

    python -m fedaux.deploy.superlink --host 0.0.0.0 --port 8443 ...
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import resource
import signal
import socket
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any, ClassVar

import uvicorn
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fedaux.deploy import flower_patches
from fedaux.deploy.quotas import ReplyQuotas

PUBLIC_KEY_HEADER = FLEET_HTTP_PUBLIC_KEY_HEADER.lower().encode()
MAX_HEAD = 2**16  # bytes of a request before its body
MAX_CONNECTIONS = 100  # at a time from one other machine, and new ones in a burst
# new ones a second from one other machine, in the long run: a site keeps its own open
CONNECTION_RATE = 5.0
# seconds in which requests may end when the server is stopped: a log is followed for
# hours
SHUTDOWN_TIMEOUT = 5
# seconds in which a request's headers must be there, and then more of its body, at
# least at
REQUEST_TIMEOUT = 30.0
MIN_BODY_RATE = 2**12  # bytes a second
MAX_BODY = 2**23  # bytes of a request: Flower cuts arrays into objects of 5 MB
MAX_IN_FLIGHT = 2**24  # bytes of one site's requests that are being read or answered
# requests of one site at once, and a second in the long run
REQUEST_BURST = 200
REQUEST_RATE = 20.0
MAX_DELAY = 10.0  # seconds that a request of a site waits for its turn
# seconds of nothing but internal errors, after which the server ends, to be started
# again
USELESS_AFTER = 120.0


def serve(app: Any, **options: Any) -> None:
    """Run `uvicorn.run` under limits. Callers are identified by their connection,
    whatever headers and proxies say.
    """
    config = uvicorn.Config(
        app,
        **{**options, **pinned_options()},
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
    )
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[LimitedListener.of(config.bind_socket())])
    if not server.started:
        sys.exit(1)


def pinned_options() -> dict[str, Any]:
    """Return uvicorn's options that no caller chooses: the limits, and that headers do
    not say who calls.
    """
    # a WebSocket would leave LimitedProtocol
    limited = {"http": LimitedProtocol, "ws": "none", "loop": "asyncio"}
    return {**limited, "proxy_headers": False, "forwarded_allow_ips": ""}


def serve_checked(app: Any, **options: Any) -> None:
    """Serve Flower's app, if all that protects it is in effect."""
    flower_patches.check_superlink(app, OWN)
    serve(app, **options)


class LimitedListener(socket.socket):
    """Hangs up on a machine that connects too often, before TLS: the handshake is what
    costs the server most.
    """

    rate: ConnectionRate

    @classmethod
    def of(cls, bound: socket.socket) -> LimitedListener:
        listener = cls(fileno=bound.detach())
        listener.rate = ConnectionRate()
        listener.listen()  # callers wait while the app starts, and are not refused
        return listener

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        host = address[0]
        if is_loopback(host) or self.rate.allows(machine(host)):
            return connection, address
        connection.close()
        # asyncio continues, at its next turn
        raise ConnectionAbortedError(f"too many connections from {host}")


class ConnectionRate:
    """A token bucket for each machine."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # tokens, and when they were counted
        self.buckets: dict[str, tuple[float, float]] = {}

    def allows(self, machine: str) -> bool:
        # an attacker with this many machines is not stopped by counting each
        if len(self.buckets) > 10_000:
            self.buckets.clear()
        now = self.clock()
        tokens, counted = self.buckets.get(machine, (MAX_CONNECTIONS, now))
        tokens = min(MAX_CONNECTIONS, tokens + (now - counted) * CONNECTION_RATE)
        allowed = tokens >= 1
        self.buckets[machine] = (tokens - allowed, now)
        return allowed


class LocalOnlyMiddleware:
    """ASGI middleware: other machines reach the fleet API and the health check only."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "lifespan"
            or is_public(scope["path"])
            or is_local(scope.get("client"))
        ):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            reason = "only the fleet API is open to other machines"
            refusal = PlainTextResponse(reason, 403)
            await refusal(scope, receive, send)


def is_public(path: str) -> bool:
    return path == "/health" or path.startswith("/v1/fleet/")


def is_local(client: tuple[str, int] | None) -> bool:
    return client is not None and is_loopback(client[0])


class SiteLimitMiddleware:
    """ASGI middleware: what one site may ask for at a time, with a key that opens all
    doors or without.

    A site is told by its machine and the key that it shows: no one at another machine
    uses up what it has.
    """

    def __init__(
        self, app: ASGIApp, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.app = app
        self.clock = clock
        self.in_flight: Counter[tuple[str, bytes]] = Counter()
        self.due: dict[tuple[str, bytes], float] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/fleet/"):
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        size = body_size(headers)
        if size is None:
            refusal = PlainTextResponse(f"a length of at most {MAX_BODY} bytes", 413)
            await refusal(scope, receive, send)
            return
        address, _ = scope.get("client") or ("", 0)
        key = headers.get(PUBLIC_KEY_HEADER, b"")[:200]
        site = (machine(address), key)
        delay = self.delay(site)
        await asyncio.sleep(min(delay, MAX_DELAY))
        if delay > MAX_DELAY or self.in_flight[site] + size > MAX_IN_FLIGHT:
            # which Flower's node tries again
            refusal = PlainTextResponse("too much at once", 503)
            await refusal(scope, receive, send)
            return
        self.in_flight[site] += size
        try:
            await self.app(scope, receive, send)
        finally:
            self.in_flight[site] -= size
            if self.in_flight[site] <= 0:
                del self.in_flight[site]

    def delay(self, site: tuple[str, bytes]) -> float:
        """Seconds until a request of the site may be handled. One that would wait too
        long does not count.
        """
        now = self.clock()
        if len(self.due) > 10_000:
            self.due = {name: due for name, due in self.due.items() if due > now}
        # a site that was silent may send a burst at once
        burst_ago = now - REQUEST_BURST / REQUEST_RATE
        due = max(self.due.get(site, 0.0), burst_ago) + 1 / REQUEST_RATE
        if due - now <= MAX_DELAY:
            self.due[site] = due
        return max(0.0, due - now)


def body_size(headers: Mapping[bytes, bytes]) -> int | None:
    """Return how long a request says that its body is, or None if it does not say so, or
    the body is too long.
    """
    size = headers.get(b"content-length", b"")
    if not size.isdigit() or int(size) > MAX_BODY or b"transfer-encoding" in headers:
        return None
    return int(size)


class UselessMiddleware:
    """ASGI middleware: ends a server that has had nothing but internal errors, of its
    database say, for too long.
    """

    def __init__(
        self, app: ASGIApp, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.app = app
        self.clock = clock
        self.worked = clock()  # when it last answered without an internal error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            if scope["type"] == "http" and scope["path"] != "/health":
                if status < 500:
                    self.worked = self.clock()
                elif status == 500 and self.clock() - self.worked > USELESS_AFTER:
                    os.kill(os.getpid(), signal.SIGTERM)


class ConnectionPhase(Enum):
    """What a connection waits for."""

    NOTHING = "nothing"  # a request is answered, or the next one has not begun
    HEADERS = "headers"
    BODY = "body"


@dataclass(frozen=True)
class Waiting:
    """What a connection waited for when it was looked at.

    Attributes:
        phase: What it waited for.
        newest: Uvicorn's object of the newest request whose headers are there, or None
            before the first. There is another one for every request, so that the same
            object means the same request.
        received: The bytes that had come over this connection.
    """

    phase: ConnectionPhase
    newest: object
    received: int

    def stalled_since(self, before: Waiting) -> bool:
        """Whether the same is awaited as at an earlier look: headers, or a body of
        which too little has come.
        """
        same_phase = self.phase is before.phase
        if not same_phase or self.newest is not before.newest:
            return False
        if self.phase is ConnectionPhase.BODY:
            grown = self.received - before.received
            return grown < MIN_BODY_RATE * REQUEST_TIMEOUT
        return self.phase is ConnectionPhase.HEADERS


class LimitedProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """Uvicorn's protocol with a cap on connections from one machine, and timeouts for
    idle ones.
    """

    by_machine: ClassVar[Counter[str]] = Counter()
    _peer = ""
    _head = 0  # bytes of a request whose headers are not all there yet
    _received = 0  # bytes of everything
    _last_look = Waiting(ConnectionPhase.NOTHING, None, 0)
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        name = transport.get_extra_info("peername")
        address = ""
        if name:
            address = name[0]
        self._peer = machine(address)
        self.by_machine[self._peer] += 1
        if self._has_too_many(address):
            transport.close()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.by_machine[self._peer] -= 1
        if self.by_machine[self._peer] <= 0:
            del self.by_machine[self._peer]
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Uvicorn would read headers without end, and all of a body that has been
        answered already: with a 413, say.
        """
        newest = self.cycle
        in_body = self._body_missing()
        self._received += len(data)
        super().data_received(data)
        if in_body or self.cycle is not newest:
            self._head = 0
        else:
            self._head += len(data)
        if self._head > MAX_HEAD or (
            self._body_missing() and self.cycle.response_complete
        ):
            self.transport.abort()

    def _has_too_many(self, address: str) -> bool:
        """Whether the machine at this address holds more connections than it may."""
        return self.by_machine[self._peer] > MAX_CONNECTIONS and not is_loopback(
            address
        )

    def _body_missing(self) -> bool:
        return self.cycle is not None and self.cycle.more_body

    def _waiting(self) -> Waiting:
        if self._body_missing():
            phase = ConnectionPhase.BODY
        elif self.cycle is None or self._head > 0:
            phase = ConnectionPhase.HEADERS
        else:
            phase = ConnectionPhase.NOTHING
        return Waiting(phase, self.cycle, self._received)

    def _watch(self) -> None:
        """Close a connection whose request does not arrive: no headers yet, or a body
        that has stopped growing.
        """
        waiting = self._waiting()
        if waiting.stalled_since(self._last_look):
            self.transport.close()
            return
        self._last_look = waiting
        self._timer = self.loop.call_later(REQUEST_TIMEOUT, self._watch)


def shrink_database(path: str) -> None:
    """Let the database give back the space of what is deleted, now and after every
    round.
    """
    if not path:
        return
    with closing(sqlite3.connect(path, timeout=60)) as database:
        database.execute("PRAGMA auto_vacuum = FULL")
        database.execute("VACUUM")


OWN = (UselessMiddleware, LocalOnlyMiddleware, SiteLimitMiddleware)  # in this order


def raise_file_limit() -> None:
    """As many open files as this process may have: each connection is one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def is_loopback(address: str) -> bool:
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def machine(address: str) -> str:
    """Whom to count: an IPv4 address, or the /64 that an IPv6 machine usually has to
    itself.
    """
    parsed = _parsed(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(parsed), 64), strict=False))
    return str(parsed or address)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def main() -> None:
    from flwr.superlink.cli.flower_superlink import flower_superlink

    flower_patches.refuse_untested_flower()
    flower_patches.add_middleware([Middleware(kind) for kind in OWN])
    flower_patches.limit_replies_with(ReplyQuotas)
    flower_patches.serve_superlink_with(serve_checked)
    raise_file_limit()
    options = dict(pairwise(sys.argv))
    shrink_database(options.get("--database", ""))
    flower_superlink()


if __name__ == "__main__":
    main()
