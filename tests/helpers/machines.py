"""Machines of their own for tests: network namespaces, each with an address, on wires
that are slow, lossy or cut.

A wire carries packets between two TUN devices in this process: many kernels come
without `sch_netem`, few without TUN.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import struct
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000


class Wire(threading.Thread):
    """Between two devices. `delay` (seconds each way), `loss` (share of packets) and
    `cut` may change at any time.
    """

    def __init__(self, ends: tuple[int, int], seed: int) -> None:
        super().__init__(daemon=True)
        self.ends, self.rng = ends, random.Random(seed)
        self.delay, self.loss, self.cut = 0.0, 0.0, False
        self.carried = self.lost = 0
        self.loop = asyncio.new_event_loop()

    def run(self) -> None:
        for here, there in (self.ends, self.ends[::-1]):
            self.loop.add_reader(here, self._packet, here, there)
        self.loop.run_forever()
        self.loop.close()
        for end in self.ends:
            os.close(end)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.join()

    def _packet(self, here: int, there: int) -> None:
        packet = os.read(here, 65536)
        if self.cut or self.rng.random() < self.loss:
            self.lost += 1
            return
        self.carried += 1
        self.loop.call_later(self.delay, os.write, there, packet)


class Machines:
    """A server at `ADDRESS` and sites by name, each with a wire to it. Root alone may
    make them.
    """

    ADDRESS = "198.18.0.1"

    def __init__(self, sites: Sequence[str]) -> None:
        self.sites, self.wires = sites, dict[str, Wire]()

    def space(self, name: str) -> str:
        return f"fedaux-{os.getpid()}-{name}"

    def inside(self, name: str, *words: str) -> list[str]:
        """A command on this machine."""
        return ["ip", "netns", "exec", self.space(name), *words]

    def __enter__(self) -> Machines:
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _make(self) -> None:
        for name in ("server", *self.sites):
            _ip("netns", "add", self.space(name))
            _ip("-n", self.space(name), "link", "set", "lo", "up")
        _ip(
            "-n",
            self.space("server"),
            "address",
            "add",
            f"{self.ADDRESS}/32",
            "dev",
            "lo",
        )
        for number, site in enumerate(self.sites, 1):
            near, far = (
                self._device(f"fedaux{number}s", "server"),
                self._device(f"fedaux{number}c", site),
            )
            server, client = self.space("server"), self.space(site)
            _ip(
                "-n",
                server,
                "route",
                "add",
                f"198.18.{number}.1/32",
                "dev",
                f"fedaux{number}s",
            )
            _ip(
                "-n",
                client,
                "address",
                "add",
                f"198.18.{number}.1/32",
                "dev",
                f"fedaux{number}c",
            )
            _ip(
                "-n",
                client,
                "route",
                "add",
                "default",
                "dev",
                f"fedaux{number}c",
                "src",
                f"198.18.{number}.1",
            )
            self.wires[site] = Wire((near, far), seed=number)
            self.wires[site].start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for wire in self.wires.values():
            wire.stop()
        for name in ("server", *self.sites):
            subprocess.run(
                ["ip", "netns", "del", self.space(name)],
                check=False,
                capture_output=True,
            )

    def _device(self, device: str, machine: str) -> int:
        """A TUN device of this machine; what it sends is read here, and what is written
        here it receives.
        """
        end = os.open(TUN, os.O_RDWR)
        fcntl.ioctl(
            end, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI)
        )
        _ip("link", "set", device, "netns", self.space(machine))
        _ip("-n", self.space(machine), "link", "set", device, "up")
        return end


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def permitted() -> bool:
    """Whether this process may make machines."""
    name = f"fedaux-{os.getpid()}-permitted"
    try:
        made = (
            subprocess.run(
                ["ip", "netns", "add", name], capture_output=True, check=False
            ).returncode
            == 0
        )
    except FileNotFoundError:
        return False
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made and os.access(TUN, os.R_OK | os.W_OK)


needs_machines = pytest.mark.skipif(
    not permitted(),
    reason="network namespaces and TUN devices need root (and Debian's iproute2)",
)
