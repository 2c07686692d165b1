"""Quotas of replies at the SuperLink, applied before its database: one keyed site costs
its own contribution only.

Each order says how many bytes its reply may have (`flower.serialization.reply_group`).
A site may answer an order that was sent to it, within that size, a number of objects
and a time. The server's app sees the reply when it is complete and can be read. A site
that breaks this is answered for by an error, at once, so that no round waits for it.

Flower itself bounds none of it: a reply of gigabytes is stored and read whole, an
incomplete one blocks the app for hours, and one that cannot be read ends the run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from logging import WARNING
from typing import TYPE_CHECKING, Any

from flwr.app import Error, Message, Metadata
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.common.logger import log
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from starlette.exceptions import HTTPException

from fedaux.core.failures import Refusal
from fedaux.flower.serialization import reply_bytes

if TYPE_CHECKING:
    from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
    from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest, PushObjectResponse
    from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse

OBJECT_BYTES = 256  # that an object costs next to its content
MAX_OBJECTS = 256  # of a small reply
CHUNK_BYTES = 2**14  # of the quota for each object more
MAX_TRIES = 8  # of a site to push one reply: its connection may break
SLOWEST = 2**14  # bytes a second, on average
REPLY_TIME = 60.0  # seconds that any reply may take


@dataclass(eq=False)
class Allowance:
    """What is left of an order's quota."""

    order: dict[str, Any]  # the SuperLink's row of it
    node: int
    limit: int
    left: int
    deadline: float
    tries: int = 0
    session: str = ""
    reply: str = ""  # id of the reply that is being pushed
    objects: tuple[str, ...] = ()  # of that reply
    missing: set[str] = field(default_factory=set)
    ended: str = ""  # why no more is taken: "complete", or what was wrong


class ReplyQuotas:
    """Stands before three handlers of the SuperLink: `push_messages` and `push_object`
    of sites, `pull` of the app.
    """

    def __init__(
        self,
        push_messages: Callable[..., PushMessagesResponse],
        push_object: Callable[..., PushObjectResponse],
        pull: Callable[..., PullAppMessagesResponse],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._push_messages = push_messages
        self._push_object = push_object
        self._pull = pull
        self._clock = clock
        self._orders: dict[str, Allowance] = {}
        self._sessions: dict[str, Allowance] = {}
        self._lock = threading.RLock()

    def push_messages(
        self, request: PushMessagesRequest, state: Any
    ) -> PushMessagesResponse:
        """Begin a reply, if it answers an order to this very node."""
        node = request.node.node_id
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise HTTPException(400, "one reply at a time")
        metadata = request.messages_list[0].metadata
        tree = request.message_object_trees[0]
        with self._lock:
            allowance = self._allowance(metadata.reply_to_message_id, node, state)
            most = MAX_OBJECTS + allowance.limit // CHUNK_BYTES
            objects = tuple(_object_ids(tree, most))
            if metadata.src_node_id != node or metadata.message_id != tree.object_id:
                raise HTTPException(403, "this reply is not your own")
            if allowance.reply != tree.object_id:
                self._drop(allowance, state)
            allowance.tries += 1
            if allowance.tries > MAX_TRIES or not objects:
                self._refuse(allowance, state, "too many objects, or too many tries")
            allowance.left = allowance.limit  # of this try
            size = request.ByteSize() + OBJECT_BYTES * len(objects)
            self._spend(allowance, size, state)
            response = self._push_messages(request=request, state=state)
            self._sessions.pop(allowance.session, None)
            allowance.session = response.session_id
            allowance.reply = tree.object_id
            allowance.objects = objects
            allowance.missing = set(response.objects_to_push)
            self._sessions[allowance.session] = allowance
            if not allowance.missing:  # all of it is there, from an earlier try
                self._complete(allowance, state)
        return response

    def push_object(self, request: PushObjectRequest, state: Any) -> PushObjectResponse:
        """Take a part of a reply that was begun."""
        with self._lock:
            allowance = self._sessions.get(request.session_id)
            # of a site that pushed while this server was started anew, too: it begins
            # again
            if allowance is None:
                raise HTTPException(500, "no reply was begun with this session")
            if allowance.node != request.node.node_id:
                raise HTTPException(403, "this reply is not your own")
            if allowance.ended:
                raise HTTPException(413, allowance.ended)
            self._spend(allowance, len(request.object_content), state)
        response = self._push_object(request=request, state=state)
        with self._lock:
            if response.stored and request.object_id in allowance.missing:
                allowance.missing.discard(request.object_id)
                if not allowance.missing and not allowance.ended:
                    self._complete(allowance, state)
        return response

    def pull(
        self, request: PullAppMessagesRequest, state: Any, task: Any
    ) -> PullAppMessagesResponse:
        """Hand out replies that are complete; give up those that are too slow."""
        with self._lock:
            now = self._clock()
            incomplete = set()
            for name in request.message_ids:
                allowance = self._orders.get(name)
                if allowance is None or allowance.ended or not allowance.reply:
                    continue
                if now > allowance.deadline:
                    self._end(allowance, state, "too slow")
                else:
                    incomplete.add(name)
        kept = [name for name in request.message_ids if name not in incomplete]
        del request.message_ids[:]
        request.message_ids.extend(kept)
        return self._pull(request, state, task)

    def _allowance(self, order: str, node: int, state: Any) -> Allowance:
        now = self._clock()
        for name, allowance in list(self._orders.items()):
            if now > allowance.deadline + 3600:
                del self._orders[name]
                self._sessions.pop(allowance.session, None)
        if order not in self._orders:
            row = state.get_valid_message_ins(order)
            if row is None or row["dst_node_id"] % 2**64 != node:
                raise HTTPException(410, "there is no such order for you")
            limit = reply_bytes(row["group_id"])
            deadline = now + REPLY_TIME + limit / SLOWEST
            self._orders[order] = Allowance(row, node, limit, limit, deadline)
        allowance = self._orders[order]
        if allowance.node != node:
            raise HTTPException(410, "there is no such order for you")
        if allowance.ended:
            raise HTTPException(413, allowance.ended)
        return allowance

    def _spend(self, allowance: Allowance, size: int, state: Any) -> None:
        allowance.left -= size
        if allowance.left < 0:
            self._refuse(allowance, state, f"more than {allowance.limit:,} bytes")

    def _refuse(self, allowance: Allowance, state: Any, reason: str) -> None:
        self._end(allowance, state, reason)
        raise HTTPException(413, reason)

    def _complete(self, allowance: Allowance, state: Any) -> None:
        """Check that the app will be able to read a reply, and that it says in its
        content whose it is.
        """
        try:
            contents = {
                name: state.object_store.get(name) for name in allowance.objects
            }
            message: Any = inflate_object_from_contents(allowance.reply, contents)
            answers = _answers_its_order(message, allowance)
        except Exception as error:  # hostile objects fail in many ways
            self._end(allowance, state, f"cannot be read: {type(error).__name__}")
            return
        if answers:
            allowance.ended = "complete"
        else:
            self._end(allowance, state, "not a reply to its order")

    def _end(self, allowance: Allowance, state: Any, reason: str) -> None:
        """Take no more, throw away what was stored, and answer the order by an error in
        the site's place.
        """
        allowance.ended = reason
        log(WARNING, "The reply of node %s was refused: %s.", allowance.node, reason)
        self._drop(allowance, state)
        error = _error_reply(allowance)
        if state.store_message_res(error) is not None:
            state._store_generated_message(error)

    def _drop(self, allowance: Allowance, state: Any) -> None:
        if allowance.reply:
            state.object_store.delete(allowance.reply)
            state._cleanup_push_session(allowance.session, cleanup_messages=True)
            state._on_push_session_expired({allowance.reply})
            allowance.reply = ""


def _answers_its_order(message: Any, allowance: Allowance) -> bool:
    if not isinstance(message, Message):
        return False
    metadata = message.metadata
    order = allowance.order["message_id"]
    return (
        metadata.src_node_id == allowance.node and metadata.reply_to_message_id == order
    )


def _object_ids(tree: ObjectTree, most: int) -> Iterator[str]:
    """Yield the ids in a tree; none at all if there are more than `most`."""
    ids: list[str] = []
    stack = [tree]
    while stack:
        branch = stack.pop()
        ids.append(branch.object_id)
        if len(ids) + len(stack) + len(branch.children) > most:
            return
        stack.extend(branch.children)
    yield from dict.fromkeys(ids)


def _error_reply(allowance: Allowance) -> Message:
    order = allowance.order
    now = time.time()
    metadata = Metadata(
        run_id=order["run_id"] % 2**64,
        message_id="",
        src_node_id=allowance.node,
        dst_node_id=SUPERLINK_NODE_ID,
        reply_to_message_id=order["message_id"],
        group_id=order["group_id"],
        message_type=order["message_type"],
        created_at=now,
        ttl=max(0.0, order["created_at"] + order["ttl"] - now),
    )
    message = make_message(
        metadata=metadata,
        error=Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, Refusal.QUOTA.value),
    )
    message.metadata.__dict__["_message_id"] = message.object_id
    return message
