"""A SuperLink under attack, before anybody has shown a key: it stays reachable, and
reads no more than it must.

Other machines reach its fleet API and its health check only.
"""

import asyncio
import importlib
import resource
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from fedaux.deploy import flower_patches, superlink
from fedaux.deploy.flower_patches import PatchError
from fedaux.deploy.superlink import (
    ConnectionRate,
    LimitedProtocol,
    SiteLimitMiddleware,
    UselessMiddleware,
    is_loopback,
    machine,
    raise_file_limit,
    serve,
)
from helpers.harness import Patience

LIMIT, FLEET = 1000, "/v1/fleet/push-object"
read: list[int] = []


async def answer(request: Request) -> PlainTextResponse:
    try:
        read.append(len(await request.body()))
    except ClientDisconnect:
        read.append(-1)
    return PlainTextResponse(
        "fine", headers={"caller": request.client.host if request.client else ""}
    )


async def follow(request: Request) -> StreamingResponse:
    """A log that goes on for as long as the run does."""

    async def lines() -> AsyncIterator[bytes]:
        while True:
            yield b"line"
            await asyncio.sleep(0.1)

    return StreamingResponse(lines())


@contextmanager
def serving() -> Iterator[int]:
    app = Starlette(
        routes=[
            *(Route(path, answer, methods=["GET", "POST"]) for path in ("/", FLEET)),
            Route("/log", follow),
        ],
        middleware=[Middleware(SiteLimitMiddleware)],
    )
    servers: list[uvicorn.Server] = []

    class Kept(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            servers.append(self)

    limit = pytest.MonkeyPatch()
    limit.setattr(superlink, "MAX_BODY", LIMIT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn, "Server", Kept)
        options = {
            "port": 0,
            "log_level": "error",
            "proxy_headers": True,
            "forwarded_allow_ips": "*",
        }
        thread = threading.Thread(target=partial(serve, app, **options), daemon=True)
        thread.start()
        while not (servers and servers[0].started):
            time.sleep(0.01)
    try:
        yield int(servers[0].servers[0].sockets[0].getsockname()[1])
    finally:
        servers[0].should_exit = True
        thread.join(10)
        limit.undo()
    assert not thread.is_alive()


def call(port: int, data: bytes, wait: float = 10.0) -> bytes:
    """What the server sends until it closes, or has answered."""
    with socket.create_connection(("127.0.0.1", port), wait) as made:
        made.sendall(data)
        return made.recv(4096)


def until_fine(made: socket.socket) -> None:
    """Until a whole answer is there."""
    received = b""
    while not received.endswith(b"fine"):
        more = made.recv(4096)
        assert more, "it hung up"
        received += more


def slowly(made: socket.socket, size: int) -> None:
    for _ in range(size // 10_000):
        made.sendall(10_000 * b"x")
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def empty() -> None:
    read.clear()


def head(*lines: str) -> bytes:
    return "\r\n".join(
        [f"POST {FLEET} HTTP/1.1", "Host: x", "Connection: close", *lines, "", ""]
    ).encode()


def test_a_body_is_read_up_to_the_limit() -> None:
    with serving() as port:
        assert b"200 OK" in call(port, head(f"Content-Length: {LIMIT}") + bytes(LIMIT))
    assert read == [LIMIT]


def test_a_body_that_says_it_is_longer_is_not_read() -> None:
    """A body of 1 GB was read before authentication."""
    with serving() as port:
        assert b"413" in call(port, head("Content-Length: 1000000000"))
    assert read == []


def test_a_body_that_was_refused_is_not_read_and_thrown_away() -> None:
    """5 GB in a minute were, at the cost of everybody else."""
    with serving() as port, socket.create_connection(("127.0.0.1", port), 10) as made:
        made.sendall(
            f"POST {FLEET} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n".encode()
        )
        with pytest.raises(ConnectionError):
            made.sendall(bytes(10**8))


@pytest.mark.parametrize("more", [[], ["Content-Length: 1"]])
def test_a_body_that_does_not_say_so_is_not_read(more: list[str]) -> None:
    chunks = b"".join(b"200\r\n" + bytes(0x200) + b"\r\n" for _ in range(4))
    with serving() as port:
        assert b"200 OK" not in call(
            port, head("Transfer-Encoding: chunked", *more) + chunks + b"0\r\n\r\n"
        )
    assert read == []


@pytest.mark.parametrize(
    "begun", [b"", b"POST / HTTP/1.1\r\nHost:", head("Content-Length: 10") + b"12345"]
)
def test_a_request_that_does_not_arrive_is_given_up(
    monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(superlink, "REQUEST_TIMEOUT", 0.1)
    with serving() as port:
        started = time.monotonic()
        assert b"200 OK" not in call(port, begun)
        assert 0.05 < time.monotonic() - started < 5
        assert LimitedProtocol.by_machine.total() <= 1


def test_a_second_request_that_does_not_arrive_is_given_up_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the first has to arrive in it
    monkeypatch.setattr(superlink, "REQUEST_TIMEOUT", 0.5)
    with serving() as port, socket.create_connection(("127.0.0.1", port), 10) as made:
        made.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        until_fine(made)
        made.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert made.recv(4096) == b""


def test_requests_that_do_arrive_share_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Together their heads are longer than one may be."""
    monkeypatch.setattr(superlink, "MAX_HEAD", 2000)
    line = f"X-Long: {'x' * 1000}\r\n"
    with serving() as port, socket.create_connection(("127.0.0.1", port), 10) as made:
        for size in (0, 10, LIMIT, 0, 10):
            made.sendall(
                f"POST / HTTP/1.1\r\nHost: x\r\n{line}Content-Length: {size}\r\n\r\n".encode()
            )
            made.sendall(bytes(size))
            until_fine(made)
    assert read == [0, 10, LIMIT, 0, 10]


@pytest.mark.parametrize(
    "begun",
    [b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\n" + 9 * b"X: x\r\n"],
)
def test_headers_have_an_end(begun: bytes) -> None:
    """A path of 20 MB kept the server busy for 11 s: it is put together anew with every
    packet.
    """
    with serving() as port, socket.create_connection(("127.0.0.1", port), 10) as made:
        made.sendall(begun)
        with pytest.raises(ConnectionError):
            slowly(made, 10**6)


def test_no_connection_becomes_a_websocket() -> None:
    """It left the count of connections one too high, for good: after a hundred its
    machine was shut out.
    """
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    with serving() as port:
        before = LimitedProtocol.by_machine.total()
        assert b"200 OK" in call(port, upgrade)
        patience = Patience(10)
        while LimitedProtocol.by_machine.total() > before:
            assert not patience.over(), LimitedProtocol.by_machine
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("address", "counted", "loopback"),
    [
        ("192.0.2.7", "192.0.2.7", False),
        ("::ffff:192.0.2.7", "192.0.2.7", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("::1", "::/64", True),
        ("2001:db8::1:2:3:4", "2001:db8::/64", False),
        ("127.9.9.9", "127.9.9.9", True),
        ("testclient", "testclient", False),
        ("", "", False),
    ],
)
def test_whom_a_connection_counts_on(
    address: str, counted: str, loopback: bool
) -> None:
    """An IPv6 machine has 2⁶⁴ addresses to call from. Only this machine may control the
    server.
    """
    assert (machine(address), is_loopback(address)) == (counted, loopback)
    assert superlink.is_local((address, 5)) is loopback
    assert not superlink.is_local(None)


def test_one_machine_cannot_take_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """991 half-open requests made /health unreachable."""
    monkeypatch.setattr(superlink, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(superlink, "CONNECTION_RATE", 1e9)
    monkeypatch.setattr(superlink, "is_loopback", lambda address: False)
    with serving() as port:
        half_open = [
            socket.create_connection(("127.0.0.1", port), 10) for _ in range(5)
        ]
        for made in half_open:
            made.sendall(b"GET / HTTP/1.1\r\n")
        while LimitedProtocol.by_machine.total() < 5:
            time.sleep(0.01)
        assert call(port, b"") == b""  # closed at once
        half_open.pop().close()
        while LimitedProtocol.by_machine.total() > 4:
            time.sleep(0.01)
        assert b"200 OK" in call(port, head("Content-Length: 0"))
        for made in half_open:
            made.close()


def test_there_are_as_many_files_as_there_may_be() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_server_that_is_stopped_does_not_wait_for_who_follows_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While `run.sh` showed the log of a run, `superlink.sh` took no calls any more,
    and did not end either.
    """
    monkeypatch.setattr(superlink, "SHUTDOWN_TIMEOUT", 1)
    with ExitStack() as stack, serving() as port:
        follower = stack.enter_context(
            socket.create_connection(("127.0.0.1", port), 10)
        )
        follower.sendall(b"GET /log HTTP/1.1\r\nHost: here\r\n\r\n")
        assert b"200 OK" in follower.recv(4096)


def test_who_calls_is_whom_the_connection_comes_from() -> None:
    """`FORWARDED_ALLOW_IPS=*` and a header opened the control API to other machines."""
    with serving() as port:
        assert b"caller: 127.0.0.1" in call(
            port, head("Content-Length: 0", "X-Forwarded-For: 192.0.2.7")
        )


def test_a_machine_that_connects_too_often_is_hung_up_on_before_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(superlink, "MAX_CONNECTIONS", 5)
    monkeypatch.setattr(superlink, "CONNECTION_RATE", 0.5)
    ask = head("Content-Length: 0")
    with serving() as port:
        assert all(b"200 OK" in call(port, ask) for _ in range(20))  # this machine may
        monkeypatch.setattr(superlink, "is_loopback", lambda address: False)
        assert all(b"200 OK" in call(port, ask) for _ in range(5))
        with socket.create_connection(("127.0.0.1", port), 10) as made:
            assert made.recv(1) == b""  # nothing was sent, nothing was waited for
        time.sleep(2.1)
        assert b"200 OK" in call(port, ask)


def test_a_machine_may_connect_so_often() -> None:
    now = 0.0
    rate = ConnectionRate(lambda: now)
    assert sum(rate.allows("a") for _ in range(1000)) == superlink.MAX_CONNECTIONS
    assert rate.allows("b")
    for second in range(1, 101):
        for part in range(200):  # as an attacker would
            now = second + part / 200
            rate.allows("a")
    now += 1
    assert sum(rate.allows("a") for _ in range(1000)) == superlink.CONNECTION_RATE
    now += 3600
    assert sum(rate.allows("a") for _ in range(1000)) == superlink.MAX_CONNECTIONS
    assert all(rate.allows(str(number)) for number in range(30_000))
    assert len(rate.buckets) <= 10_001


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("/v1/fleet/pull-messages", True),
        ("/health", True),
        ("/v1/control/start-run", False),
        ("/v1/runtime/acquire-task", False),
        ("/v1/fleets", False),
        ("/docs", False),
        ("/", False),
        ("//v1/fleet/x", False),
    ],
)
def test_what_is_open(path: str, public: bool) -> None:
    assert superlink.is_public(path) is public


@pytest.mark.usefixtures("flower")
def test_flowers_own_server_answers_strangers_only_about_the_fleet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flwr.superlink.main import create_app
    from starlette.testclient import TestClient

    command = importlib.import_module("flwr.superlink.cli.flower_superlink")
    monkeypatch.setattr(superlink, "raise_file_limit", Mock())
    started = Mock()
    monkeypatch.setattr(command, "flower_superlink", started)
    superlink.main()
    started.assert_called_once_with()
    assert uvicorn.run is superlink.serve_checked
    app = create_app()
    closed = {
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/docs",
    }
    opened = {"/v1/fleet/activate-node", "/health"}
    for caller, refused in (("192.0.2.7", closed), ("127.0.0.1", set())):
        client = TestClient(app, client=(caller, 1234))
        assert {
            path for path in closed | opened if client.post(path).status_code == 403
        } == refused
    assert (
        client.post(
            "/v1/fleet/activate-node", headers={"Content-Length": str(10**9)}
        ).status_code
        == 413
    )
    monkeypatch.setattr(superlink, "serve", served := Mock())
    superlink.serve_checked(app, port=1)
    served.assert_called_once_with(app, port=1)


@pytest.mark.usefixtures("flower")
def test_a_superlink_without_its_protections_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever Flower's text looks like: what is there counts."""
    from flwr.superlink.main import create_app

    monkeypatch.setattr(superlink, "serve", served := Mock())
    with pytest.raises(PatchError, match="not in effect"):
        superlink.serve_checked(create_app(), port=1)
    # but no quotas
    flower_patches.add_middleware([Middleware(one) for one in superlink.OWN])
    with pytest.raises(PatchError, match="not in effect"):
        superlink.serve_checked(create_app(), port=1)
    served.assert_not_called()


async def ask(
    limits: SiteLimitMiddleware,
    size: int,
    key: bytes = b"k",
    path: str = "/v1/fleet/push-object",
) -> int:
    """The status of an answer to a request of a site; 200: it was passed on."""
    sent: list[int] = []

    async def send(message: dict[str, object]) -> None:
        sent.extend([int(message["status"])] if "status" in message else [])  # type: ignore[call-overload]

    headers = [
        (b"content-length", str(size).encode()),
        (superlink.PUBLIC_KEY_HEADER, key),
    ]
    scope = {
        "type": "http",
        "path": path,
        "client": ("192.0.2.7", 1),
        "headers": headers,
    }
    await limits(scope, Mock(), send)  # type: ignore[arg-type]
    return sent[0] if sent else 200


def test_one_site_has_a_rate_and_another_is_not_slowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def passed(*args: object) -> None:
        pass

    monkeypatch.setattr(superlink.asyncio, "sleep", sleep)
    limits = SiteLimitMiddleware(passed, clock=lambda: 1000.0)

    async def play() -> list[int]:
        found = [await ask(limits, 10) for _ in range(1000)]
        assert await ask(limits, 10, b"other") == 200
        return found

    found = asyncio.run(play())
    at_once, waiting = (
        superlink.REQUEST_BURST,
        int(superlink.MAX_DELAY * superlink.REQUEST_RATE),
    )
    assert found.count(200) == pytest.approx(at_once + waiting, abs=2)
    assert set(found) == {200, 503}
    assert slept[0] == slept[-1] == 0.0
    assert max(slept) == superlink.MAX_DELAY


def test_one_site_has_so_many_bytes_in_flight() -> None:
    gate, size = asyncio.Event(), superlink.MAX_BODY

    async def passed(*args: object) -> None:
        await gate.wait()

    async def play() -> list[int]:
        limits = SiteLimitMiddleware(passed)
        held = [asyncio.create_task(ask(limits, size)) for _ in range(2)]
        await asyncio.sleep(0.01)
        found = [await ask(limits, size), await ask(limits, size + 1)]
        gate.set()
        return [*found, *(await asyncio.gather(*held)), await ask(limits, size)]

    assert asyncio.run(play()) == [503, 413, 200, 200, 200]


def test_a_server_that_has_nothing_but_internal_errors_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended, now = Mock(), [0.0]
    monkeypatch.setattr(superlink.os, "kill", ended)

    async def fail(*args: object) -> None:
        raise RuntimeError("database is locked")

    useless = UselessMiddleware(fail, clock=lambda: now[0])

    def call() -> None:
        with pytest.raises(RuntimeError):
            asyncio.run(ask(useless, 10))  # type: ignore[arg-type]

    call()
    now[0] = superlink.USELESS_AFTER + 1
    useless.worked = 10.0
    call()
    ended.assert_not_called()
    now[0] += 20
    call()
    ended.assert_called_once()
