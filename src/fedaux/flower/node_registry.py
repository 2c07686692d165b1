"""Maps clients to Flower nodes: nodes come and go and change their ids, clients keep
their names.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from fedaux.core.errors import Exit, FedauxError
from fedaux.core.event_log import printable
from fedaux.core.progress import Notice, Phase, SitesConnected, report
from fedaux.flower.federation import is_lost, read_reply, stream_replies
from fedaux.flower.serialization import MessageError, serialize
from fedaux.messages import MESSAGE_VERSION, ORDERS, Hello, HelloOrder

POLL_INTERVAL = 1.0  # seconds


class MissingSitesError(FedauxError, RuntimeError):
    """Too few sites connected."""

    code = Exit.CLIENTS


class NodeRegistry:
    """Asks every new node for its clients; excludes a node with a wrong answer, or with
    a client of another node.

    A node that was registered under a name, which the SuperLink keeps with its key,
    answers for that name alone, or for the names that it was registered under, divided
    by commas. Others are excluded if `registered_only`.
    """

    def __init__(
        self,
        grid: Grid,
        clients: Sequence[str],
        classes: Sequence[str],
        registered_only: bool = False,
    ) -> None:
        self._grid = grid
        self._expected = list(clients)
        self._classes = list(classes)
        self._registered_only = registered_only
        # clients by node; empty for an excluded node
        self._known: dict[int, list[str]] = {}
        self._versions: dict[str, str] = {}  # of packages, by client that has said so
        # nodes that must wait until another one is gone, and what was said of them
        self._rivals: dict[int, str] = {}

    def refresh(self) -> dict[str, int]:
        """{client: node} of all connected nodes; new ones are asked, and what else than
        before they run is reported.
        """
        before = dict(self._versions)
        nodes = self._ask_new_nodes()
        if self._versions != before:
            self._report_connected(len(nodes), phase="")
        return nodes

    def _ask_new_nodes(self, timeout: float = 120.0) -> dict[str, int]:
        """Ask nodes that are not known, which have `timeout` seconds to answer; return
        all as `refresh` does.
        """
        names = {node.node_id: node.name for node in self._grid.get_nodes()}
        self._known = {
            node: clients for node, clients in self._known.items() if node in names
        }
        self._rivals = {
            node: said for node, said in self._rivals.items() if node in names
        }
        new = [node for node in names if node not in self._known]
        messages = (
            (
                node,
                Message(serialize(HelloOrder()), node, ORDERS[HelloOrder], ttl=timeout),
            )
            for node in new
        )
        for node, reply in stream_replies(self._grid, messages, timeout):
            # a silent one is asked again at the next refresh
            if reply is not None and not is_lost(reply):
                self._admit(node, names[node], reply)
        return {
            client: node for node, clients in self._known.items() for client in clients
        }

    def wait_for_clients(self, timeout: float, minimum: int) -> dict[str, int]:
        """Wait until all clients are connected, or until the timeout if at least
        `minimum` are.
        """
        end = time.monotonic() + timeout
        last = 0
        self._report_connected(last)
        while True:
            nodes = self._ask_new_nodes()
            if len(nodes) != last:
                self._report_connected(len(nodes))
                last = len(nodes)
            if len(nodes) == len(self._expected):
                return nodes
            if time.monotonic() > end:
                break
            time.sleep(POLL_INTERVAL)
        if len(nodes) >= minimum:
            return nodes
        missing = [client for client in self._expected if client not in nodes]
        raise MissingSitesError(
            f"Cannot begin: {len(nodes)} of {len(self._expected)} clients connected "
            f"within {timeout:g} s, and federation.quorum asks for {minimum}. Missing: "
            f"{', '.join(missing[:10])}. Start their SuperNodes, or raise "
            "federation.connect_timeout."
        )

    def _report_connected(self, count: int, phase: Phase = "connect") -> None:
        versions = dict(self._versions)
        report(
            SitesConnected(
                "sites connected",
                count,
                len(self._expected),
                phase=phase,
                versions=versions,
            )
        )

    def _admit(self, node: int, registered: str, reply: Message) -> None:
        clients, versions, problem = _validate_hello(
            reply, self._expected, self._classes
        )
        if not problem:
            problem = self._foreign(registered, clients)
        if problem:
            self._known[node] = []
            report(Notice(f"node {node} is excluded: {problem}"))
            return
        taken = {client for others in self._known.values() for client in others}
        if taken.isdisjoint(clients):
            self._known[node] = clients
            self._versions.update(dict.fromkeys(clients if versions else [], versions))
            return
        problem = (
            "another node already speaks for "
            f"{', '.join(sorted(taken.intersection(clients)))}"
        )
        # said once; it is asked again, as the other may be gone by then
        if self._rivals.get(node) != problem:
            self._rivals[node] = problem
            report(Notice(f"node {node} is excluded: {problem}"))

    def _foreign(self, registered: str, clients: Sequence[str]) -> str:
        """Return what is wrong with these names for the key that the node has shown, or ""
        if nothing is.
        """
        names = [name.strip() for name in registered.split(",") if name.strip()]
        if not names and not self._registered_only:
            return ""
        foreign = [client for client in clients if client not in names]
        if not foreign:
            return ""
        key = "its key is registered without a name"
        if names:
            key = f"its key is registered for {', '.join(names)}"
        return f"it speaks for {', '.join(foreign)}, and {key}"


def _validate_hello(
    reply: Message, expected: Sequence[str], classes: Sequence[str]
) -> tuple[list[str], str, str]:
    """Return (clients, versions, problem). The problem is empty if the answer is
    valid.
    """
    try:
        answer = read_reply(Hello, reply)
        names = json.loads(answer.clients)
        theirs = json.loads(answer.classes)
    except MessageError as error:
        return [], "", str(error)
    except ValueError:
        return [], "", "its answer is not JSON"
    versions = printable(answer.versions)[:200]
    if answer.speaks != MESSAGE_VERSION:
        return (
            [],
            versions,
            (
                f"it speaks version {answer.speaks} of messages, here it is "
                f"{MESSAGE_VERSION}: upgrade the older one"
            ),
        )
    if not (
        isinstance(names, list)
        and names
        and all(isinstance(name, str) and name in expected for name in names)
    ):
        return (
            [],
            versions,
            f"it speaks for {str(names)[:200]}, and federation.sites does not",
        )
    if theirs != list(classes):
        return (
            [],
            versions,
            (
                f"its classes are {str(theirs)[:200]}, here they are {list(classes)}. "
                "Declare data.classes alike"
            ),
        )
    return sorted(set(names)), versions, ""
