"""Another user of a site's machine gets none of its orders, nor the token of one that
is being worked on.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpcore  # noqa: F401  # httpx imports it with the first connection, and nobody may not read it then
import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from fedaux.deploy.supernode import SocketClient
from helpers.deployments import deploy
from helpers.harness import SETTINGS, Patience, free_port

NOBODY = 65534
TOKEN = re.compile(rb"[0-9a-f]{64}")
SUPEREXEC = RuntimeVersionHttpInterceptor(component_name="SuperExec")


class Node:
    """A site's node with one order, which it gets when `order` is called."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, site = (
            folder,
            free_port(),
            deploy(folder / "d") / "sites" / "berlin",
        )
        (folder / "app.fab").write_bytes(
            build_fab_from_disk(folder / "d" / "server" / "app")
        )
        settings = (
            f'clients="berlin" config="{site / "site.toml"}" vault="{site / "vault"}"'
        )
        words = [
            "--insecure",
            "--superlink",
            "127.0.0.1:1",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        temporary = folder / "tmp"
        temporary.mkdir()
        temporary.chmod(0o1777)
        self.environment = {
            **{
                name: text
                for name, text in os.environ.items()
                if not TOKEN.search(text.encode())
            },
            **SETTINGS,
            "PYTHONPATH": ":".join(paths),
            "PATH": programs,
            "TMPDIR": str(temporary),
            "FLWR_HOME": str(folder / "flwr"),
        }
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "helpers.lone_node",
                    str(folder),
                    *words,
                    "--node-config",
                    settings,
                ],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def order(self) -> None:
        (self.folder / "go").touch()

    @property
    def reply(self) -> str:
        path = self.folder / "reply"
        return path.read_text() if path.exists() else ""

    def command_lines(self) -> dict[int, bytes]:
        """Of all processes of the node: what every user of the machine can read."""
        return {pid: read(pid, "cmdline") for pid in self.family()}

    def family(self) -> list[int]:
        found = [
            int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()
        ]
        return [
            pid
            for pid in found
            if read(pid, "stat").rpartition(b")")[2].split()[3:4]
            == [b"%d" % self.process.pid]
        ]


def read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def until(ready: Callable[[], bool], node: Node) -> None:
    patience = Patience(60)
    while not ready():
        alive = node.process.poll() is None and not patience.over()
        assert alive, (node.folder / "log").read_text()
        time.sleep(0.02)


@pytest.fixture
def node() -> Iterator[Node]:
    """In a folder that all users can enter, as pytest's own is not."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        started = Node(Path(folder))
        try:
            until(
                lambda: b"superexec" in b"".join(started.command_lines().values()),
                started,
            )
            yield started
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.process.pid, signal.SIGKILL)
            started.process.wait()


def as_nobody(work: Callable[[], str]) -> str:
    """What this function returns, or the name of its error, when another user of this
    machine calls it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def steal(client: RuntimeHttpClient) -> str:
    """Ask for the site's next order until one comes or a second is over, as its own
    process does.
    """
    for _ in range(100):
        reply = client.AcquireTask(
            AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        )
        if reply.token:
            return "an order and its token"
        time.sleep(0.01)
    return "no order"


def at_port(port: int) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        f"127.0.0.1:{port}", True, None, [SUPEREXEC]
    )


def at_socket(path: Path) -> SocketClient:
    return SocketClient.from_server_address(str(path), True, None, [SUPEREXEC])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_gets_neither_orders_nor_tokens(node: Node) -> None:
    """Any user of the machine could take an order at the port, or read its token in the
    list of processes.
    """
    paths = list((node.folder / "tmp").glob("fedaux-*/runtime.sock"))
    seen: set[bytes] = set()

    def look() -> bool:
        lines = node.command_lines()
        seen.update(lines.values(), (read(pid, "environ") for pid in lines))
        return bool(node.reply)

    # before there is an order: it may be done while others ask for it
    with ThreadPoolExecutor() as watching:
        watched = watching.submit(until, look, node)
        node.order()
        assert as_nobody(lambda: steal(at_port(node.port))).startswith("ConnectError")
        told = [as_nobody(lambda path=path: steal(at_socket(path))) for path in paths]
        assert ["Permission denied" in one for one in told] == [True]
        watched.result()
    assert node.reply == "query.hello"
    assert any(b"clientapp" in line for line in seen)
    assert not [line for line in seen if TOKEN.search(line) or b"--token" in line]
    assert steal(at_socket(paths[0])) == "no order"  # its own user is answered
    node.process.send_signal(signal.SIGTERM)
    node.process.wait(60)
    assert not paths[0].parent.exists()
