"""Maps clients to Flower nodes: nodes come and go and change their ids, clients keep their names."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from fedaux.core.errors import Exit, FedauxError
from fedaux.core.messages import Hello, HelloOrder
from fedaux.core.progress import Notice, OnProgress, no_progress
from fedaux.flower.federation import read_reply
from fedaux.flower.mailbox import stream_replies
from fedaux.flower.serialization import MESSAGE_TYPES, MessageError, serialize

POLL_INTERVAL = 1.0  # seconds


class MissingSitesError(FedauxError, RuntimeError):
    """Too few sites connected."""

    code = Exit.CLIENTS


class NodeRegistry:
    """Asks every new node for its clients; excludes a node with a wrong answer, or with a client of another node."""

    def __init__(
        self,
        grid: Grid,
        clients: Sequence[str],
        classes: Sequence[str],
        on_progress: OnProgress = no_progress,
    ) -> None:
        self._grid, self._expected, self._classes, self._on_progress = grid, list(clients), list(classes), on_progress
        self._known: dict[int, list[str]] = {}  # clients by node; empty for an excluded node

    def refresh(self, timeout: float = 60.0) -> dict[str, int]:
        """{client: node} of all connected nodes; new ones are asked, and have `timeout` seconds to answer."""
        present = list(self._grid.get_node_ids())
        self._known = {node: names for node, names in self._known.items() if node in present}
        new = [node for node in present if node not in self._known]
        messages = (
            (node, Message(serialize(HelloOrder()), node, MESSAGE_TYPES[HelloOrder], ttl=timeout)) for node in new
        )
        for node, reply in stream_replies(self._grid, messages, timeout):
            if reply is not None:  # a silent one is asked again at the next refresh
                self._known[node] = self._clients_of(node, reply)
        return {client: node for node, names in self._known.items() for client in names}

    def wait_for_clients(self, timeout: float, minimum: int) -> dict[str, int]:
        """Wait until all clients are connected, or until the timeout if at least `minimum` are."""
        end, last = time.monotonic() + timeout, -1
        while True:
            nodes = self.refresh()
            if len(nodes) != last:
                self._on_progress(Notice(f"{len(nodes)} of {len(self._expected)} clients are connected"))
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
            f"{len(nodes)} of {len(self._expected)} clients connected within {timeout:g} s, and federation.quorum asks "
            f"for {minimum}; missing: {', '.join(missing[:10])}. Start their SuperNodes, or raise "
            "federation.connect_timeout."
        )

    def _clients_of(self, node: int, reply: Message) -> list[str]:
        names, problem = _validate_hello(reply, self._expected, self._classes)
        taken = {client for clients in self._known.values() for client in clients}
        if not problem and not taken.isdisjoint(names):
            problem = f"another node already speaks for {', '.join(sorted(taken.intersection(names)))}"
        if problem:
            self._on_progress(Notice(f"node {node} is excluded: {problem}"))
            return []
        return names


def _validate_hello(reply: Message, expected: Sequence[str], classes: Sequence[str]) -> tuple[list[str], str]:
    """(clients, problem); the problem is empty where the answer is valid."""
    try:
        answer = read_reply(Hello, reply)
        names, theirs = json.loads(answer.clients), json.loads(answer.classes)
    except MessageError as error:
        return [], str(error)
    except ValueError:
        return [], "its answer is not JSON"
    if not (isinstance(names, list) and names and all(isinstance(name, str) and name in expected for name in names)):
        return [], f"it speaks for {str(names)[:200]}, and federation.sites does not"
    if theirs != list(classes):
        return [], f"its classes are {str(theirs)[:200]}, here they are {list(classes)}; declare data.classes alike"
    return sorted(set(names)), ""
