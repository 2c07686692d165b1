"""The SuperLink as its operator sees it, from the server's own machine: registered keys
by name, and its last run.

A server that merges regions has no SuperLink. `RegionalServers` stands in for one.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedaux.core.errors import Exit, FedauxError
from fedaux.deploy.certificates import node_fingerprint
from fedaux.deploy.env import read_env
from fedaux.runs.status import STATUS_FILE, RunStatus, is_alive

if TYPE_CHECKING:
    import httpx

REGIONS = "regions"  # as in server/regions.py, which would bring PyTorch along
CHECK_TIMEOUT = 5.0  # seconds for a server to answer


class LinkError(FedauxError, RuntimeError):
    """The server does not answer, or does not do what it is asked."""

    code = Exit.NEGATIVE


@dataclass(frozen=True)
class Node:
    """A key that the SuperLink knows, under the name of its site."""

    name: str
    node_id: int
    status: str  # registered, online, offline
    since: str  # of the status, ISO 8601; "" before it was ever online
    key: str = ""  # fingerprint


@dataclass(frozen=True)
class FlowerRun:
    """A run as the SuperLink knows it."""

    run_id: int
    # pending, starting, running, finished:completed, finished:failed, finished:stopped
    status: str
    details: str
    since: str  # when it was handed in, ISO 8601

    @property
    def lives(self) -> bool:
        return not self.status.startswith("finished")


def ask_health(address: str, ca: Path) -> httpx.Headers:
    """Return the headers of the server's health check over TLS, verified against `ca`,
    or raise an HTTPError.
    """
    import httpx

    authority = ssl.create_default_context(cafile=str(ca))
    return httpx.get(
        f"https://{address}/health", verify=authority, timeout=CHECK_TIMEOUT
    ).headers


@dataclass(frozen=True)
class ControlLink:
    """Controls the SuperLink over Flower's control API. `folder` is the server's."""

    folder: Path

    def nodes(self) -> list[Node]:
        """List all nodes except unregistered ones."""
        from flwr.proto.control_pb2 import ListNodesRequest

        with self._client() as client:
            registered = client.ListNodes(ListNodesRequest()).nodes_info
        nodes = []
        for node in registered:
            if node.status == "unregistered":
                continue
            since = node.last_deactivated_at
            if node.status == "online":
                since = node.last_activated_at
            key = node_fingerprint(node.public_key)
            nodes.append(Node(node.name, node.node_id, node.status, since, key))
        return nodes

    def last_run(self) -> FlowerRun | None:
        """Return the run that was submitted last, or None before the first."""
        from flwr.proto.control_pb2 import ListRunsRequest

        with self._client() as client:
            runs = client.ListRuns(ListRunsRequest()).run_dict.values()
        last = max(runs, key=lambda run: run.pending_at, default=None)
        if last is None:
            return None
        status = ":".join(filter(None, (last.status.status, last.status.sub_status)))
        return FlowerRun(last.run_id, status, last.status.details, last.pending_at)

    def check(self) -> None:
        """Raise an error with a remedy, within seconds, unless the server answers and
        is the right one.
        """
        import httpx

        try:
            ask_health(self._address, self.folder / "ca.crt")
        except (httpx.HTTPError, OSError) as error:
            raise LinkError(
                f"Cannot reach the server: the server at {self._address} does not "
                f"answer ({error or type(error).__name__}). Start superlink.sh, on its "
                f"own machine: LOCAL in {self.folder / 'server.env'} says where it is "
                "looked for."
            ) from error

    def register(self, public_key: Path, name: str) -> int:
        from cryptography.hazmat.primitives import serialization
        from flwr.proto.control_pb2 import RegisterNodeRequest

        key = serialization.load_ssh_public_key(public_key.read_bytes())
        pem = key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        with self._client() as client:
            request = RegisterNodeRequest(public_key=pem, name=name)
            return int(client.RegisterNode(request=request).node_id)

    def unregister(self, node_id: int) -> None:
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        with self._client() as client:
            client.UnregisterNode(request=UnregisterNodeRequest(node_id=node_id))

    @property
    def _address(self) -> str:
        return read_env(self.folder / "server.env", ("LOCAL",))["LOCAL"]

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from flwr.cli.typing import SuperLinkConnection
        from flwr.cli.utils import init_http_client_from_connection

        # Flower takes no relative path
        authority = (self.folder / "ca.crt").absolute()
        address = self._address
        connection = SuperLinkConnection(
            "fedaux", address, str(authority), insecure=False
        )
        client = None
        try:
            # it says which server it calls, even to who wants JSON
            with redirect_stdout(StringIO()):
                client = init_http_client_from_connection(connection)
            yield client
        except (
            Exception
        ) as error:  # Flower's own, those of its HTTP library, and of the system
            raise LinkError(
                f"Cannot ask the server at {address}: the request failed "
                f"({error or type(error).__name__}). Look at the log of superlink.sh, "
                "and try again."
            ) from error
        finally:
            if client is not None:
                client.close()


@dataclass(frozen=True)
class RegionalServers:
    """Regional servers as the server that merges them sees them. `run` is the folder
    that all servers share.
    """

    run: Path
    clock: Callable[[], float] = time.time

    def check(self) -> None:
        """Do nothing: there is no server to check."""

    def nodes(self) -> list[Node]:
        """List the regional servers by their own status files."""
        return [
            self._node(path)
            for path in sorted((self.run / REGIONS).glob(f"*/{STATUS_FILE}"))
        ]

    def last_run(self) -> FlowerRun | None:
        return None

    def _node(self, path: Path) -> Node:
        record = RunStatus.load(path.parent)
        status = "offline"
        since = path.stat().st_mtime
        if (
            record is not None
            and record.outcome == "running"
            and is_alive(path.parent, self.clock())
        ):
            status = "online"
            since = record.started
        moment = datetime.fromtimestamp(since, UTC).isoformat()
        return Node(path.parent.name, 0, status, moment)


def merges_regions(folder: Path) -> bool:
    return (folder / REGIONS).is_dir()
