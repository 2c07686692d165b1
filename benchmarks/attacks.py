"""What a SuperLink and the run that goes on bear from a machine without a key: without
limits, with ours, behind nginx.

nginx (Debian: nginx-light) has the settings of docs/nginx.conf. In a network of its
own, where an attacker can have another address than the sites:

sudo unshare -n env PYTHONPATH=tests python benchmarks/attacks.py
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from helpers.harness import BIN, Servers, _family, _listens, free_port, wait_for
from helpers.three_sites import CONFIG, Federation

ROOT = Path(__file__).parents[1]
SERVER = "198.18.0.1"
ATTACKER = "198.18.0.2"
NEIGHBOUR = "198.18.0.3"
SITE = "client-000"
LIMITS = ["none", "ours", "nginx"]
PATH = "/v1/fleet/pull-messages"
# of a port, until this time; what it achieved
Attack = Callable[[int, float], Awaitable[str]]


class Link(Servers):
    """A SuperLink that all addresses of the machine reach: with our limits, as Flower
    starts it, behind nginx.
    """

    limits = "ours"

    def superlink(self, *extra: str) -> None:
        ours = self.limits == "ours"
        program = (
            [sys.executable, "-m", "fedaux.deploy.superlink"]
            if ours
            else [str(BIN / "flower-superlink")]
        )
        files = [
            ("ca-certfile", "ca.crt"),
            ("certfile", "server.pem"),
            ("keyfile", "server.key"),
        ]
        trust = [
            word
            for option, name in files
            for word in (f"--ssl-{option}", str(self.folder / name))
        ]
        host, port = (
            ("127.0.0.1", free_port())
            if self.limits == "nginx"
            else ("0.0.0.0", self.port)
        )
        address = [
            "--host",
            host,
            "--port",
            str(port),
            "--database",
            str(self.folder / "superlink.db"),
        ]
        words = [*program, *trust, *address, "--enable-supernode-auth"]
        # as a login has it
        self.start(
            "superlink", "bash", "-c", 'ulimit -Sn 1024; exec "$@"', "superlink", *words
        )
        wait_for(
            lambda: "Uvicorn running" in self.log("superlink"),
            60,
            "it does not listen",
            self,
            "superlink",
        )
        if self.limits == "nginx":
            self._nginx(port)

    def _nginx(self, inner: int) -> None:
        """Sites and attackers call nginx; the run and its commands call the SuperLink,
        as on a server's own machine.
        """
        settings = (ROOT / "docs" / "nginx.conf").read_text()
        settings = settings.replace("8443", str(self.port)).replace("9443", str(inner))
        # the folder is root's alone
        (self.folder / "nginx.conf").write_text(f"user root;\n{settings}")
        for file in (self.home / "config.toml", self.folder / "server.env"):
            file.write_text(file.read_text().replace(str(self.port), str(inner)))
        words = [
            "nginx",
            "-e",
            "stderr",
            "-p",
            str(self.folder),
            "-c",
            str(self.folder / "nginx.conf"),
        ]
        self.start("nginx", "bash", "-c", 'ulimit -Sn 1024; exec "$@"', "nginx", *words)
        wait_for(lambda: _listens(self.port), 60, "it does not listen", self, "nginx")

    def front(self) -> list[int]:
        """The processes that answer the network."""
        servers = [
            self.processes[name]
            for name in ("superlink", "nginx")
            if name in self.processes
        ]
        return [pid for server in servers for pid in served(server.pid)]


def served(server: int) -> list[int]:
    """A server and its workers, without the apps that it runs."""
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in _family(server)}
    return [
        pid
        for pid, line in lines.items()
        if b"superexec" not in line and b"serverapp" not in line
    ]


async def connect(
    port: int, source: str = ATTACKER
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return await asyncio.open_connection(
        SERVER, port, ssl=context, local_addr=(source, 0)
    )


def request(size: int) -> bytes:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/protobuf\r\nContent-Length: {size}\r\n\r\n"
    return head.encode()


async def large_body(port: int, end: float) -> str:
    """1 GB, again and again."""
    sent = 0
    block = bytes(2**20)
    while time.monotonic() < end:
        try:
            _, writer = await connect(port)
            writer.write(request(10**9))
            for _ in range(10**9 // len(block)):
                writer.write(block)
                await asyncio.wait_for(writer.drain(), max(0.1, end - time.monotonic()))
                sent += len(block)
            await asyncio.sleep(1)
            writer.close()
        except (OSError, TimeoutError):
            await asyncio.sleep(1)
    return f"{sent / 1e6:,.0f} MB sent"


async def half_open(port: int, end: float) -> str:
    """5,000 requests whose headers never end."""
    held: list[asyncio.StreamWriter] = []
    gate = asyncio.Semaphore(50)
    refused = 0

    async def hold() -> None:
        nonlocal refused
        async with gate:
            try:
                _, writer = await asyncio.wait_for(
                    connect(port), max(0.1, end - time.monotonic())
                )
                writer.write(b"POST /v1/fleet/x HTTP/1.1\r\nHost:")
                held.append(writer)
            except (OSError, TimeoutError):
                refused += 1

    await asyncio.gather(*(hold() for _ in range(5000)))
    await asyncio.sleep(max(0.0, end - time.monotonic()))
    for writer in held:
        writer.transport.abort()
    return f"{len(held):,} connections were made, {refused:,} refused"


async def garbage(port: int, end: float) -> str:
    """100 kB that mean nothing, 200 times a second."""
    body = os.urandom(100_000)
    answers = 0
    begun = time.monotonic()

    async def send(number: int) -> None:
        nonlocal answers
        while time.monotonic() < end:
            due = begun + (answers + 1) / 200
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            try:
                reader, writer = await connect(port)
                writer.write(request(len(body)) + body)
                await asyncio.wait_for(
                    reader.readline(), max(0.1, end - time.monotonic())
                )
                answers += 1
                writer.transport.abort()
            except (OSError, TimeoutError):
                await asyncio.sleep(0.1)

    await asyncio.gather(*(send(number) for number in range(40)))
    return f"{answers / (time.monotonic() - begun):.0f} a second were answered"


async def endless_head(port: int, end: float) -> str:
    """A request line of 20 MB, again and again on ten connections."""
    sent = 0
    refused = 0
    block = b"x" * 2**14

    async def send() -> None:
        nonlocal sent, refused
        while time.monotonic() < end:
            try:
                _, writer = await connect(port)
                writer.write(b"GET /")
                for _ in range(20 * 2**20 // len(block)):
                    writer.write(block)
                    await asyncio.wait_for(
                        writer.drain(), max(0.1, end - time.monotonic())
                    )
                    sent += len(block)
                writer.transport.abort()
            except (OSError, TimeoutError):
                refused += 1
                await asyncio.sleep(0.5)

    await asyncio.gather(*(send() for _ in range(10)))
    return f"{sent / 1e6:,.0f} MB sent, cut off {refused} times"


async def many_headers(port: int, end: float) -> str:
    """10,000 headers in each request, again and again on ten connections."""
    head = (
        b"GET /health HTTP/1.1\r\n"
        + b"".join(b"X-%d: x\r\n" % number for number in range(10_000))
        + b"\r\n"
    )
    answers = Counter[str]()

    async def send() -> None:
        while time.monotonic() < end:
            try:
                reader, writer = await connect(port)
                writer.write(head)
                line = await asyncio.wait_for(
                    reader.readline(), max(0.1, end - time.monotonic())
                )
                answers[line.decode().partition(" ")[2][:3] or "cut off"] += 1
                writer.transport.abort()
            except (OSError, TimeoutError):
                answers["cut off"] += 1
            await asyncio.sleep(0.2)

    await asyncio.gather(*(send() for _ in range(10)))
    return ", ".join(f"{answer}: {count}" for answer, count in sorted(answers.items()))


async def bytewise(port: int, end: float) -> str:
    """90 requests whose bodies come a byte a second, for 75 seconds."""
    begun = time.monotonic()
    lasted = list[float]()

    async def drip() -> None:
        try:
            reader, writer = await connect(port)
            writer.write(request(10**6))
            while time.monotonic() < begun + 75:
                writer.write(b"x")
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(100), 1)
                    break
            writer.transport.abort()
        except OSError:
            pass
        lasted.append(time.monotonic() - begun)

    await asyncio.gather(*(drip() for _ in range(90)))
    kept = sum(seconds > 70 for seconds in lasted)
    median = statistics.median(lasted)
    return f"{kept} of 90 are open after 75 s; median {median:.0f} s"


async def forbidden(port: int, end: float) -> str:
    """What sites never need: to start an app, to register a key, to take the server's
    orders.
    """
    paths = [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/docs",
        "/openapi.json",
    ]
    paths += [
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "//v1/control/list-runs",
    ]
    found = Counter[str]()
    for path in paths:
        reader, writer = await connect(port)
        writer.write(request(0).replace(PATH.encode(), path.encode()))
        line = await asyncio.wait_for(reader.readline(), 10)
        found[line.decode().split()[1] if line else "cut off"] += 1
        writer.transport.abort()
    return f"{len(paths)} paths: " + ", ".join(
        f"{answer} {count}" for answer, count in sorted(found.items())
    )


async def nothing(port: int, end: float) -> str:
    await asyncio.sleep(max(0.0, end - time.monotonic()))
    return ""


ATTACKS: dict[str, Attack] = {
    "none": nothing,
    "a body of 1 GB": large_body,
    "5,000 half-open requests": half_open,
    "100 kB of garbage, 200 a second": garbage,
    "a request line of 20 MB": endless_head,
    "10,000 headers": many_headers,
    "a byte a second": bytewise,
    "forbidden paths": forbidden,
}


@dataclass
class Watch:
    """The server's memory and work, and whether a third machine gets `/health`, while
    an attack goes on.
    """

    pids: list[int]
    port: int
    peak: int = 0  # kB
    work: float = 0.0  # seconds of a core
    answered: list[float] = field(default_factory=list)  # seconds
    asked: int = 0
    over: bool = False

    def __post_init__(self) -> None:
        self._before = self._work()
        self._threads = [
            threading.Thread(target=work) for work in (self._memory, self._health)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.over = True
        for thread in self._threads:
            thread.join()
        self.work = self._work() - self._before

    def _memory(self) -> None:
        while not self.over:
            texts = [Path(f"/proc/{pid}/status").read_text() for pid in self.pids]
            self.peak = max(
                self.peak,
                sum(int(text.split("VmRSS:")[1].split()[0]) for text in texts),
            )
            time.sleep(0.1)

    def _work(self) -> float:
        fields = [
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            for pid in self.pids
        ]
        return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf(
            "SC_CLK_TCK"
        )

    def _health(self) -> None:
        async def ask() -> bool:
            reader, writer = await connect(self.port, NEIGHBOUR)
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            line = await reader.readline()
            writer.transport.abort()
            return b"200" in line

        while not self.over:
            begun = time.monotonic()
            self.asked += 1
            try:
                if asyncio.run(asyncio.wait_for(ask(), 5)):
                    self.answered.append(time.monotonic() - begun)
            except (OSError, TimeoutError):
                pass
            time.sleep(max(0.0, begun + 1 - time.monotonic()))


def rounds(folder: Path) -> int:
    path = folder / "history.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def goes_on(folder: Path, seconds: float = 240.0) -> bool:
    """Whether another round is finished."""
    seen = rounds(folder)
    end = time.monotonic() + seconds
    while rounds(folder) == seen and time.monotonic() < end:
        time.sleep(1)
    return rounds(folder) > seen


def attack(servers: Link, name: str, seconds: float, out: Path) -> None:
    """Print what it did to the SuperLink, to others who call it, and to the run."""
    before = rounds(out)
    watch = Watch(servers.front(), servers.port)
    begun = time.monotonic()
    said = asyncio.run(ATTACKS[name](servers.port, time.monotonic() + seconds))
    watch.stop()
    latency = (
        f"{1000 * statistics.median(watch.answered):.0f} ms" if watch.answered else "–"
    )
    health = f"{len(watch.answered)} of {watch.asked}, {latency}"
    load = f"{100 * watch.work / (time.monotonic() - begun):.0f} %"
    figures = [
        servers.limits,
        name,
        said,
        f"{watch.peak / 1000:.0f}",
        load,
        health,
        str(rounds(out) - before),
    ]
    print(f"| {' | '.join(figures)} |", flush=True)


def measure(limits: str, names: list[str], seconds: float, alone: bool) -> None:
    data = replace(CONFIG.data, clients=1)
    policy = replace(CONFIG.federation, timeout=120.0)
    with (
        tempfile.TemporaryDirectory() as folder,
        Link(Path(folder) / "servers") as servers,
    ):
        made = Federation(
            Path(folder),
            servers,
            replace(CONFIG, rounds=1000, data=data, federation=policy),
        )
        servers.limits = limits
        servers.superlink()
        if not alone:
            servers.register(SITE)
            made.site(SITE)
            made.begin()
            wait_for(
                lambda: rounds(made.out) > 0,
                300,
                "no round was finished",
                servers,
                "run",
            )
        for name in names:
            attack(servers, name, seconds, made.out)
            time.sleep(0 if alone else 5)
        if not alone:
            print(
                "the run goes on" if goes_on(made.out) else "the run has stopped",
                flush=True,
            )
            failed = [
                json.loads(line)["failures"]
                for line in (made.out / "history.jsonl").read_text().splitlines()
            ]
            print(
                (
                    f"rounds: {len(failed)}, clients that missed one: "
                    f"{sum(map(len, failed))}"
                ),
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=40.0, help="of each attack")
    parser.add_argument(
        "--attack", choices=[*ATTACKS], action="append", help="else all"
    )
    parser.add_argument(
        "--limits", choices=LIMITS, action="append", help="else one after the other"
    )
    parser.add_argument("--alone", action="store_true", help="without a site and a run")
    words = parser.parse_args()
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2
    )
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (SERVER, ATTACKER, NEIGHBOUR):
        subprocess.run(
            ["ip", "address", "add", f"{address}/24", "dev", "lo"], check=True
        )
    print(
        "| limits | attack | achieved | peak, MB | core | `/health` from another "
        "machine | rounds meanwhile |"
    )
    for limits in words.limits or LIMITS:
        measure(limits, words.attack or [*ATTACKS], words.seconds, words.alone)


if __name__ == "__main__":
    main()
