"""A keyed site that sends too much, too slowly or nonsense costs its own reply, on
Flower's own state and handlers.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
)
from flwr.superlink.config_loader import (
    get_federation_manager,
    get_objectstore_linkstate_factories,
)
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from starlette.exceptions import HTTPException

from fedaux.core.failures import Refusal
from fedaux.deploy.quotas import (
    CHUNK_BYTES,
    MAX_OBJECTS,
    MAX_TRIES,
    REPLY_TIME,
    ReplyQuotas,
)
from fedaux.deploy.superlink import shrink_database
from fedaux.flower.serialization import MAX_REPLY_BYTES, reply_bytes, reply_group

LIMIT = 100_000
HANDLERS = (
    fleet_handlers.push_messages,
    fleet_handlers.push_object,
    runtime_handlers.pull_messages,
)


class Link:
    """A SuperLink's state with a run, two nodes and an order to each, behind quotas."""

    def __init__(self, database: Path) -> None:
        self.database, self.now = database, 0.0
        shrink_database(str(database))
        _, factory = get_objectstore_linkstate_factories(
            str(database), get_federation_manager(is_simulation=False)
        )
        self.state: Any = factory.state()
        self.nodes = [
            self.state.create_node(NOOP_FLWR_AID, "me", name, 60.0)
            for name in (b"honest", b"hostile")
        ]
        for node in self.nodes:
            self.state.activate_node(node, 60.0)
        kind = TaskType.SERVER_APP
        self.run = self.state.create_run(
            None, None, "h", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, kind
        )
        task = self.state.get_run_info(run_ids=[self.run])[0].primary_task_id
        self.state.claim_task(task)
        self.state.activate_task(task)
        self.quotas = ReplyQuotas(*HANDLERS, clock=lambda: self.now)
        self.orders = [self.order(node) for node in self.nodes]

    def order(self, node: int) -> str:
        facts = {
            "run_id": self.run,
            "src_node_id": SUPERLINK_NODE_ID,
            "dst_node_id": node,
            "reply_to_message_id": "",
        }
        made = message(
            RecordDict({"c": ConfigRecord({"node": node})}),
            group_id=reply_group(LIMIT),
            **facts,
        )
        self.state.store_message_ins(remove_content_from_message(made))
        return made.metadata.message_id

    def reply(self, which: int, content: RecordDict, **changes: Any) -> Message:
        facts = {
            "src_node_id": self.nodes[which],
            "reply_to_message_id": self.orders[which],
            "ttl": 500.0,
            **changes,
        }
        return message(
            content,
            run_id=self.run,
            dst_node_id=SUPERLINK_NODE_ID,
            group_id="",
            **facts,
        )

    def begin(self, which: int, made: Message, tree: ObjectTree | None = None) -> Any:
        request = PushMessagesRequest(
            node=Node(node_id=self.nodes[which]),
            messages_list=[message_to_proto(remove_content_from_message(made))],
            message_object_trees=[tree or get_object_tree(made)],
        )
        return self.quotas.push_messages(request=request, state=self.state)

    def put(self, which: int, session: str, name: str, content: bytes) -> bool:
        node = Node(node_id=self.nodes[which])
        request = PushObjectRequest(
            node=node,
            run_id=self.run,
            object_id=name,
            object_content=content,
            session_id=session,
        )
        return bool(self.quotas.push_object(request=request, state=self.state).stored)

    def send(self, which: int, made: Message) -> None:
        begun = self.begin(which, made)
        objects = get_all_nested_objects(made)
        for name in begun.objects_to_push:
            self.put(which, begun.session_id, name, objects[name].deflate())

    def pull(self) -> dict[str, str]:
        """What the app gets: the reason of each reply's error by its order, "" for a
        reply that can be read.
        """
        request = PullAppMessagesRequest(message_ids=self.orders)
        response = self.quotas.pull(
            request, self.state, SimpleNamespace(run_id=self.run)
        )
        found = [message_from_proto(one) for one in response.messages_list]
        return {
            one.metadata.reply_to_message_id: one.error.reason
            if one.has_error()
            else ""
            for one in found
        }

    def size(self) -> int:
        with closing(sqlite3.connect(self.database)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.database.stat().st_size


def message(content: RecordDict, **facts: Any) -> Message:
    known = {
        "message_id": "",
        "message_type": "train",
        "created_at": now().timestamp(),
        "ttl": 600.0,
        **facts,
    }
    made = make_message(metadata=Metadata(**known), content=content)
    made.metadata.__dict__["_message_id"] = made.object_id
    return made


def arrays(size: int, seed: int = 0) -> RecordDict:
    values = np.random.default_rng(seed).integers(0, 255, size, np.uint8)
    return RecordDict({"weights": ArrayRecord({"parameters": Array(values)})})


@pytest.fixture
def link(tmp_path: Path) -> Link:
    return Link(tmp_path / "superlink.db")


def refused(link: Link) -> None:
    """The hostile site is answered for at once, and the honest one is read."""
    link.send(0, link.reply(0, arrays(LIMIT // 2)))
    assert link.pull() == {link.orders[0]: "", link.orders[1]: Refusal.QUOTA}


def test_a_reply_within_its_quota_is_handed_out_when_it_is_complete(link: Link) -> None:
    made = link.reply(0, arrays(LIMIT // 2))
    begun, objects = link.begin(0, made), get_all_nested_objects(made)
    *first, last = begun.objects_to_push
    for name in first:
        assert link.put(0, begun.session_id, name, objects[name].deflate())
    assert link.pull() == {}  # the app would have waited for the rest, for two hours
    assert link.put(0, begun.session_id, last, objects[last].deflate())
    assert link.pull() == {link.orders[0]: ""}


def test_a_reply_that_is_too_large_is_not_stored(link: Link) -> None:
    before = link.size()
    made = link.reply(1, arrays(50 * LIMIT))
    with pytest.raises(HTTPException) as caught:
        link.send(1, made)
    assert caught.value.status_code == 413
    with pytest.raises(HTTPException):
        link.begin(1, made)  # nor tried again
    assert link.size() < before + 2 * LIMIT
    refused(link)


def test_a_slow_reply_is_answered_for(link: Link) -> None:
    begun = link.begin(1, link.reply(1, arrays(LIMIT // 2)))
    assert link.pull() == {}
    link.now = REPLY_TIME + 1000
    refused(link)
    with pytest.raises(HTTPException, match="413"):
        link.put(1, begun.session_id, begun.objects_to_push[0], b"x")


def test_small_replies_again_and_again_are_refused(link: Link) -> None:
    for number in range(MAX_TRIES):
        link.begin(1, link.reply(1, arrays(10, number)))
    with pytest.raises(HTTPException):
        link.begin(1, link.reply(1, arrays(10, 99)))
    refused(link)


def test_a_tree_of_many_objects_is_refused(link: Link) -> None:
    made = link.reply(1, arrays(10))
    leaves = [
        ObjectTree(object_id=f"{number:064x}")
        for number in range(MAX_OBJECTS + LIMIT // CHUNK_BYTES)
    ]
    with pytest.raises(HTTPException):
        link.begin(
            1, made, ObjectTree(object_id=made.metadata.message_id, children=leaves)
        )
    refused(link)


def test_a_reply_that_cannot_be_read_does_not_reach_the_app(link: Link) -> None:
    """It ended the run: its root names children that its tree does not have."""
    made = link.reply(1, arrays(10))
    begun = link.begin(1, made, ObjectTree(object_id=made.metadata.message_id))
    assert link.put(1, begun.session_id, made.metadata.message_id, made.deflate())
    refused(link)


def test_nobody_answers_for_another(link: Link) -> None:
    other = link.reply(0, arrays(10))
    for made in (other, link.reply(1, arrays(10), reply_to_message_id=link.orders[0])):
        with pytest.raises(HTTPException) as caught:
            link.begin(1, made)
        assert caught.value.status_code in (403, 410)
    begun = link.begin(0, other)
    with pytest.raises(HTTPException, match="403"):
        link.put(1, begun.session_id, begun.objects_to_push[0], b"x")
    with pytest.raises(HTTPException, match="500"):
        link.put(1, "made up", begun.objects_to_push[0], b"x")


def test_a_reply_is_sent_again_after_a_broken_connection(link: Link) -> None:
    made = link.reply(0, arrays(LIMIT * 3 // 4))
    begun, objects = link.begin(0, made), get_all_nested_objects(made)
    for name in begun.objects_to_push[:-1]:
        link.put(0, begun.session_id, name, objects[name].deflate())
    link.send(0, made)
    assert link.pull() == {link.orders[0]: ""}


def test_a_reply_whose_last_answer_was_lost_is_complete(link: Link) -> None:
    made = link.reply(0, arrays(100))
    link.send(0, made)
    link.quotas = ReplyQuotas(*HANDLERS)  # the server was started anew
    assert list(link.begin(0, made).objects_to_push) == []
    assert link.pull() == {link.orders[0]: ""}


def test_the_database_gives_space_back(link: Link) -> None:
    before = link.size()
    link.send(0, link.reply(0, arrays(LIMIT * 3 // 4)))
    assert link.size() > before + LIMIT // 2
    link.pull()
    link.state.cleanup_run(link.run)
    assert link.size() < before + LIMIT // 2


def test_an_order_says_what_its_reply_may_have() -> None:
    assert reply_bytes(reply_group(12345)) == 12345
    assert {
        reply_bytes(text) for text in ("", "3", "at-most--1-bytes", "at-most-9-bytes ")
    } == {MAX_REPLY_BYTES}
