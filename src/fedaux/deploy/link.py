"""The SuperLink as its operator sees it, from the server's own machine: registered keys by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedaux.core.errors import Exit, FedauxError
from fedaux.deploy.checks import read_variables

GONE = "unregistered"


class LinkError(FedauxError, RuntimeError):
    """A server that does not answer, or does not do as it is told."""

    code = Exit.NEGATIVE


@dataclass(frozen=True)
class Node:
    """A key that the SuperLink knows, under the name of its site."""

    name: str
    node_id: int
    status: str  # registered, online, offline
    since: str  # of the status, ISO 8601; "" before it was ever online


class Link(Protocol):
    def nodes(self) -> list[Node]: ...
    def register(self, public_key: Path, name: str) -> int: ...
    def unregister(self, node_id: int) -> None: ...


@dataclass(frozen=True)
class ControlLink:
    """Over Flower's control API; `folder` is that of the server."""

    folder: Path

    def nodes(self) -> list[Node]:
        """All but those that were unregistered."""
        from flwr.proto.control_pb2 import ListNodesRequest

        with self._client() as client:
            found = client.ListNodes(ListNodesRequest()).nodes_info
        return [
            Node(
                node.name,
                node.node_id,
                node.status,
                node.last_activated_at if node.status == "online" else node.last_deactivated_at,
            )
            for node in found
            if node.status != GONE
        ]

    def register(self, public_key: Path, name: str) -> int:
        from cryptography.hazmat.primitives import serialization
        from flwr.proto.control_pb2 import RegisterNodeRequest

        key = serialization.load_ssh_public_key(public_key.read_bytes())
        pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        with self._client() as client:
            return int(client.RegisterNode(request=RegisterNodeRequest(public_key=pem, name=name)).node_id)

    def unregister(self, node_id: int) -> None:
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        with self._client() as client:
            client.UnregisterNode(request=UnregisterNodeRequest(node_id=node_id))

    @contextmanager
    def _client(self) -> Iterator[Any]:
        from flwr.cli.typing import SuperLinkConnection
        from flwr.cli.utils import init_http_client_from_connection

        address = read_variables(self.folder / "server.env", ("LOCAL",))["LOCAL"]
        connection = SuperLinkConnection("fedaux", address, str(self.folder / "ca.crt"), insecure=False)
        client = None
        try:
            client = init_http_client_from_connection(connection)
            yield client
        except Exception as error:  # Flower's own, those of its HTTP library, and of the system
            raise LinkError(f"the server at {address} does not do it: {error or type(error).__name__}") from error
        finally:
            if client is not None:
                client.close()
