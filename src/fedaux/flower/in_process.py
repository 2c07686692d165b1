"""A Flower Grid in this process: the same ClientApp and the same messages, without
servers or start-up time.

A message is handled when its reply is pulled, so one client works at a time and only
its reply is in memory.
"""

from __future__ import annotations

import traceback
import uuid
from collections.abc import Callable, Iterable, Mapping

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

CLIENT_EXCEPTION = 2  # Flower's code for a ClientApp that raised

Handler = Callable[[Message, Context], Message]


class InProcessGrid(Grid):
    """One context per node: `settings` are its node configuration, and its `state`
    persists between messages.
    """

    def __init__(
        self,
        app: Handler,
        clients: int,
        settings: Mapping[str, str | float | int | bool],
    ) -> None:
        # Flower's own processes set this identity; messages cannot be created without
        # it
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._app = app
        self._run: Run | None = None
        self._pending: dict[str, Message] = {}
        self._contexts = {
            node + 2: Context(
                1, node + 2, {"partition-id": node, **settings}, RecordDict(), {}
            )
            for node in range(clients)
        }

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        if self._run is None:
            raise RuntimeError("an in-process grid belongs to no Flower run")
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        identities = []
        for message in messages:
            identity = uuid.uuid4().hex
            message.metadata.__dict__["_message_id"] = identity
            self._pending[identity] = message
            identities.append(identity)
        return identities

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies in the order of the ids, each computed when it is taken."""
        for identity in message_ids:
            if identity in self._pending:
                yield self._handle(self._pending.pop(identity))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return list(self.pull_messages(self.push_messages(messages)))

    def context(self, node: int) -> Context:
        return self._contexts[node]

    def _handle(self, message: Message) -> Message:
        try:
            return self._app(message, self.context(message.metadata.dst_node_id))
        except Exception as error:
            reason = "".join(traceback.format_exception_only(error)).strip()
            return Message(Error(CLIENT_EXCEPTION, reason), reply_to=message)
