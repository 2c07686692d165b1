"""What a SuperLink and the run that goes on bear from a machine without a key, without limits and with them.

In a network of its own, where an attacker can have another address than the sites:

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
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from helpers.harness import BIN, Servers, wait_for
from helpers.three_sites import CONFIG, Federation

SERVER, ATTACKER, NEIGHBOUR = "198.18.0.1", "198.18.0.2", "198.18.0.3"
SITE = "client-000"
PATH = "/v1/fleet/pull-messages"
Attack = Callable[[int, float], Awaitable[str]]  # of a port, until this time; what it achieved


class Link(Servers):
    """A SuperLink that all addresses of the machine reach, as `superlink.sh` starts it or as Flower does."""

    limits = True

    def superlink(self, *extra: str) -> None:
        program = [sys.executable, "-m", "fedaux.deploy.superlink"] if self.limits else [str(BIN / "flower-superlink")]
        files = [("ca-certfile", "ca.crt"), ("certfile", "server.pem"), ("keyfile", "server.key")]
        trust = [word for option, name in files for word in (f"--ssl-{option}", str(self.folder / name))]
        address = ["--host", "0.0.0.0", "--port", str(self.port), "--database", str(self.folder / "superlink.db")]
        words = [*program, *trust, *address, "--enable-supernode-auth"]
        self.start("superlink", "bash", "-c", 'ulimit -Sn 1024; exec "$@"', "superlink", *words)  # as a login has it
        wait_for(lambda: "Uvicorn running" in self.log("superlink"), 60, "it does not listen", self, "superlink")


async def connect(port: int, source: str = ATTACKER) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return await asyncio.open_connection(SERVER, port, ssl=context, local_addr=(source, 0))


def request(size: int) -> bytes:
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/protobuf\r\nContent-Length: {size}\r\n\r\n"
    return head.encode()


async def large_body(port: int, end: float) -> str:
    """1 GB, again and again."""
    sent, block = 0, bytes(2**20)
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
    gate, refused = asyncio.Semaphore(50), 0

    async def hold() -> None:
        nonlocal refused
        async with gate:
            try:
                _, writer = await asyncio.wait_for(connect(port), max(0.1, end - time.monotonic()))
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
    body, answers, begun = os.urandom(100_000), 0, time.monotonic()

    async def send(number: int) -> None:
        nonlocal answers
        while time.monotonic() < end:
            due = begun + (answers + 1) / 200
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            try:
                reader, writer = await connect(port)
                writer.write(request(len(body)) + body)
                await asyncio.wait_for(reader.readline(), max(0.1, end - time.monotonic()))
                answers += 1
                writer.transport.abort()
            except (OSError, TimeoutError):
                await asyncio.sleep(0.1)

    await asyncio.gather(*(send(number) for number in range(40)))
    return f"{answers / (time.monotonic() - begun):.0f} a second were answered"


async def nothing(port: int, end: float) -> str:
    await asyncio.sleep(max(0.0, end - time.monotonic()))
    return ""


ATTACKS: dict[str, Attack] = {
    "none": nothing,
    "a body of 1 GB": large_body,
    "5,000 half-open requests": half_open,
    "100 kB of garbage, 200 a second": garbage,
}


@dataclass
class Watch:
    """The SuperLink's memory, and whether a third machine gets `/health`, while an attack goes on."""

    pid: int
    port: int
    peak: int = 0  # kB
    answered: list[float] = field(default_factory=list)  # seconds
    asked: int = 0
    over: bool = False

    def __post_init__(self) -> None:
        self._threads = [threading.Thread(target=work) for work in (self._memory, self._health)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.over = True
        for thread in self._threads:
            thread.join()

    def _memory(self) -> None:
        while not self.over:
            status = Path(f"/proc/{self.pid}/status").read_text()
            self.peak = max(self.peak, int(status.split("VmRSS:")[1].split()[0]))
            time.sleep(0.1)

    def _health(self) -> None:
        async def ask() -> bool:
            reader, writer = await connect(self.port, NEIGHBOUR)
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            line = await reader.readline()
            writer.transport.abort()
            return b"200" in line

        while not self.over:
            begun, self.asked = time.monotonic(), self.asked + 1
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
    seen, end = rounds(folder), time.monotonic() + seconds
    while rounds(folder) == seen and time.monotonic() < end:
        time.sleep(1)
    return rounds(folder) > seen


def attack(servers: Link, name: str, seconds: float, out: Path) -> None:
    """Print what it did to the SuperLink, to others who call it, and to the run."""
    before, watch = rounds(out), Watch(servers.processes["superlink"].pid, servers.port)
    said = asyncio.run(ATTACKS[name](servers.port, time.monotonic() + seconds))
    watch.stop()
    latency = f"{1000 * statistics.median(watch.answered):.0f} ms" if watch.answered else "–"
    health = f"{len(watch.answered)} of {watch.asked}, {latency}"
    limits = "on" if servers.limits else "off"
    print(f"| {limits} | {name} | {said} | {watch.peak / 1000:.0f} | {health} | {rounds(out) - before} |", flush=True)


def measure(limits: bool, names: list[str], seconds: float, alone: bool) -> None:
    data, policy = replace(CONFIG.data, clients=1), replace(CONFIG.federation, timeout=120.0)
    with tempfile.TemporaryDirectory() as folder, Link(Path(folder) / "servers") as servers:
        made = Federation(Path(folder), servers, replace(CONFIG, rounds=1000, data=data, federation=policy))
        servers.limits = limits
        servers.superlink()
        if not alone:
            servers.register(SITE)
            made.site(SITE)
            made.begin()
            wait_for(lambda: rounds(made.out) > 0, 300, "no round was finished", servers, "run")
        for name in names:
            attack(servers, name, seconds, made.out)
            time.sleep(0 if alone else 5)
        if not alone:
            print("the run goes on" if goes_on(made.out) else "the run has stopped", flush=True)
            failed = [json.loads(line)["failures"] for line in (made.out / "history.jsonl").read_text().splitlines()]
            print(f"rounds: {len(failed)}, clients that missed one: {sum(map(len, failed))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each attack")
    parser.add_argument("--attack", choices=[*ATTACKS], action="append", help="else all")
    parser.add_argument("--limits", choices=["off", "on"], action="append", help="else first off, then on")
    parser.add_argument("--alone", action="store_true", help="without a site and a run")
    words = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (SERVER, ATTACKER, NEIGHBOUR):
        subprocess.run(["ip", "address", "add", f"{address}/24", "dev", "lo"], check=True)
    print("| limits | attack | achieved | peak, MB | `/health` from another machine | rounds meanwhile |")
    for limits in words.limits or ["off", "on"]:
        measure(limits == "on", words.attack or [*ATTACKS], words.seconds, words.alone)


if __name__ == "__main__":
    main()
