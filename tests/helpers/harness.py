"""Real Flower processes on 127.0.0.1 for tests: a SuperLink, SuperNodes, runs; each can
be killed and started again.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from fedaux.deploy.certificates import (
    create_authority,
    generate_key_pair,
    issue_server_certificate,
)
from fedaux.deploy.link import ControlLink

BIN = Path(sys.executable).parent
SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
APP = """
[project]
name = "fedaux-test"
version = "0.1.0"

[tool.flwr.app]
publisher = "fedaux"

[tool.flwr.app.components]
serverapp = "{server}"
clientapp = "{client}"

[tool.flwr.app.config]
config = ""
out = ""
set = ""
region = ""
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Servers:
    """All files and logs below `folder`. TLS and node keys unless `plain`."""

    def __init__(
        self,
        folder: Path,
        *,
        plain: bool = False,
        isolation: str = "subprocess",
        database: bool = True,
    ) -> None:
        self.folder, self.plain, self.isolation, self.database = (
            folder,
            plain,
            isolation,
            database,
        )
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.home = folder / "flwr"
        self.home.mkdir(parents=True)
        self.environment = {
            **os.environ,
            **SETTINGS,
            "FLWR_HOME": str(self.home),
            "FEDAUX_CACHE": str(folder / "cache"),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}",
        }
        trust = (
            "insecure = true" if plain else f'root-certificates = "{folder / "ca.crt"}"'
        )
        (self.home / "config.toml").write_text(
            f'[superlink.real]\naddress = "127.0.0.1:{self.port}"\n{trust}\n'
        )
        if not plain:
            authority = create_authority()
            server = issue_server_certificate(authority, ["127.0.0.1", "localhost"])
            (folder / "ca.crt").write_bytes(authority.certificate_pem())
            (folder / "server.pem").write_bytes(server.certificate_pem())
            (folder / "server.key").write_bytes(server.key_pem())
            (folder / "server.env").write_text(f"LOCAL=127.0.0.1:{self.port}\n")

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for name in list(self.processes):
            self.kill(name)

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )
        return self.processes[name]

    def kill(self, name: str) -> None:
        """SIGKILL, with all that it started."""
        process = self.processes.pop(name)
        for pid in _family(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def superlink(self, *extra: str) -> None:
        trust = ["--insecure"] if self.plain else [
            "--ssl-ca-certfile", str(self.folder / "ca.crt"),
            "--ssl-certfile", str(self.folder / "server.pem"),
            "--ssl-keyfile", str(self.folder / "server.key"),
            "--enable-supernode-auth",
        ]  # fmt: skip
        kept = (
            ["--database", str(self.folder / "superlink.db")] if self.database else []
        )
        address = [
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--isolation",
            self.isolation,
        ]
        self.start(
            "superlink", str(BIN / "flower-superlink"), *trust, *kept, *address, *extra
        )
        wait_for(
            lambda: _listens(self.port),
            60,
            "the SuperLink does not listen",
            self,
            "superlink",
        )
        if self.isolation == "process" and "superexec" not in self.processes:
            safe = (
                ["--insecure"]
                if self.plain
                else ["--root-certificates", str(self.folder / "ca.crt")]
            )
            where = ["--runtime-api-address", f"127.0.0.1:{self.port}"]
            self.start("superexec", str(BIN / "flower-superexec"), *safe, *where)

    def key(self, name: str) -> Path:
        folder = self.folder / "keys" / name
        if not (folder / "key").exists():
            folder.mkdir(parents=True)
            generate_key_pair(folder)
        return folder / "key"

    def register(self, name: str) -> None:
        ControlLink(self.folder).register(self.key(name).with_suffix(".pub"), name)

    def node(
        self,
        name: str,
        settings: dict[str, str],
        *,
        key: str | None = None,
        root: Path | None = None,
    ) -> None:
        """A SuperNode whose own settings are these."""
        told = " ".join(f"{k}={json.dumps(v)}" for k, v in settings.items())
        trust = (
            ["--insecure"]
            if self.plain
            else ["--root-certificates", str(root or self.folder / "ca.crt")]
        )
        trust += (
            []
            if self.plain or key == ""
            else ["--auth-supernode-private-key", str(self.key(key or name))]
        )
        address = [
            "--superlink",
            f"127.0.0.1:{self.port}",
            "--host",
            "127.0.0.1",
            "--port",
            str(free_port()),
        ]
        self.start(
            name,
            sys.executable,
            "-m",
            "helpers.quick_node",
            *trust,
            *address,
            "--node-config",
            told,
        )

    def run(
        self,
        config: Path,
        out: Path,
        name: str = "run",
        connection: Sequence[str] = ("real",),
        server: str = "fedaux.runs.server_app:app",
        client: str = "fedaux.flower.client_app:app",
        region: str = "",
    ) -> None:
        """Begin a run; its log grows in `name`."""
        app = self.folder / f"app-{name}"
        app.mkdir(exist_ok=True)
        (app / "pyproject.toml").write_text(APP.format(server=server, client=client))
        told = f'config="{config}" out="{out}" region="{region}"'
        self.start(
            name,
            str(BIN / "flwr"),
            "run",
            str(app),
            *connection,
            "--stream",
            "--run-config",
            told,
        )

    def finish(self, name: str = "run", seconds: float = 240) -> str:
        """Wait for a run to end as it should, for as long as its log grows within so
        many seconds; its log.
        """
        text, patience = "", Patience(seconds)
        while self.processes[name].poll() is None:
            if (now := self.log(name)) != text:
                text, patience = now, Patience(seconds)
            assert not patience.over(), (
                f"{name} has said nothing for {seconds} s:\n{text[-3000:]}"
            )
            time.sleep(0.2)
        text = self.log(name)
        assert re.search(r"^accuracy \d", text, re.MULTILINE), text[-3000:]
        return text

    def until(self, pattern: str, name: str = "run", seconds: float = 120) -> None:
        """Wait for a line in a log."""
        wait_for(
            lambda: bool(re.search(pattern, self.log(name))),
            seconds,
            f"no {pattern!r}",
            self,
            name,
        )


class Patience:
    """So many seconds of a machine that is idle otherwise: where work queues for its
    cores, the clock runs slower.
    """

    def __init__(self, seconds: float) -> None:
        self.left, self.seen = seconds, time.monotonic()

    def over(self) -> bool:
        now, share = (
            time.monotonic(),
            (os.cpu_count() or 1) / max(os.getloadavg()[0], 1e-9),
        )
        self.left -= (now - self.seen) * min(1.0, share)
        self.seen = now
        return self.left < 0


def wait_for(
    ready: Callable[[], bool],
    seconds: float,
    complaint: str,
    servers: Servers,
    log: str,
) -> None:
    patience = Patience(seconds)
    while not ready():
        if patience.over():
            raise AssertionError(
                f"{complaint} after {seconds} s:\n{servers.log(log)[-3000:]}"
            )
        time.sleep(0.2)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _family(pid: int) -> list[int]:
    """A process and all its descendants, whatever sessions they have made for
    themselves.
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found
