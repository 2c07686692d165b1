"""Which node speaks for which client, now: nodes come and go and change their ids, clients keep their names."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from fedaux.core.errors import Exit, FedauxError
from fedaux.core.messages import Hello, HelloOrder
from fedaux.core.progress import Notice, OnProgress, no_progress
from fedaux.flower.federation import read, replies
from fedaux.flower.serialization import ACTIONS, MessageError, pack

PAUSE = 1.0  # seconds between looks


class MissingSitesError(FedauxError, RuntimeError):
    """Too few sites came up."""

    code = Exit.CLIENTS


class Directory:
    """Asks every new node who it is. One that answers wrongly, or for a client that another node has, is left out."""

    def __init__(
        self,
        grid: Grid,
        clients: Sequence[str],
        classes: Sequence[str],
        on_progress: OnProgress = no_progress,
    ) -> None:
        self._grid, self._wanted, self._classes, self._on_progress = grid, list(clients), list(classes), on_progress
        self._known: dict[int, list[str]] = {}  # by node; empty for one that was left out

    def look(self, patience: float = 60.0) -> dict[str, int]:
        """{client: node} of all nodes that are there; new ones are asked, and given so many seconds to answer."""
        present = list(self._grid.get_node_ids())
        self._known = {node: names for node, names in self._known.items() if node in present}
        new = [node for node in present if node not in self._known]
        messages = ((node, Message(pack(HelloOrder()), node, ACTIONS[HelloOrder], ttl=patience)) for node in new)
        for node, reply in replies(self._grid, messages, patience):
            if reply is not None:  # a silent one is asked again at the next look
                self._known[node] = self._accepted(node, reply)
        return {client: node for node, names in self._known.items() for client in names}

    def wait(self, seconds: float, enough: int) -> dict[str, int]:
        """Until all clients are there, or time is up and at least `enough` are."""
        end, last = time.monotonic() + seconds, -1
        while True:
            found = self.look()
            if len(found) != last:
                self._on_progress(Notice(f"{len(found)} of {len(self._wanted)} clients are here"))
                last = len(found)
            if len(found) == len(self._wanted):
                return found
            if time.monotonic() > end:
                break
            time.sleep(PAUSE)
        if len(found) >= enough:
            return found
        missing = [client for client in self._wanted if client not in found]
        raise MissingSitesError(
            f"{len(found)} of {len(self._wanted)} clients came up within {seconds:g} s, and federation.quorum asks for "
            f"{enough}; missing: {', '.join(missing[:10])}. Start their SuperNodes, or raise federation.wait."
        )

    def _accepted(self, node: int, reply: Message) -> list[str]:
        names, problem = _names(reply, self._wanted, self._classes)
        taken = {client for known in self._known.values() for client in known}
        if not problem and not taken.isdisjoint(names):
            problem = f"another node already speaks for {', '.join(sorted(taken.intersection(names)))}"
        if problem:
            self._on_progress(Notice(f"node {node} is left out: {problem}"))
            return []
        return names


def _names(reply: Message, wanted: Sequence[str], classes: Sequence[str]) -> tuple[list[str], str]:
    """(clients, what is wrong with the answer)."""
    try:
        answer = read(Hello, reply)
        names, theirs = json.loads(answer.clients), json.loads(answer.classes)
    except MessageError as error:
        return [], str(error)
    except ValueError:
        return [], "its answer is not JSON"
    if not (isinstance(names, list) and names and all(isinstance(name, str) and name in wanted for name in names)):
        return [], f"it speaks for {str(names)[:200]}, and federation.sites does not"
    if theirs != list(classes):
        return [], f"its classes are {str(theirs)[:200]}, here they are {list(classes)}; declare data.classes alike"
    return sorted(set(names)), ""
