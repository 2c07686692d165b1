"""`python -m helpers.lone_node FOLDER OPTIONS`: a site's real SuperNode with one order,
and no SuperLink to call.

It asks who is there as soon as FOLDER/go exists, for the app in FOLDER/app.fab. The
reply is put into FOLDER/reply.
"""

import hashlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.cli.config_utils import get_fab_metadata
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
)
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import start_client_internal as internal

from fedaux.deploy import supernode
from fedaux.flower.serialization import serialize
from fedaux.messages import ORDERS, HelloOrder

NODE = 7


def connection(folder: Path) -> tuple[Any, ...]:
    """What Flower's own connection to a SuperLink consists of."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    order = Message(serialize(HelloOrder()), NODE, ORDERS[HelloOrder])
    order.metadata.__dict__["_message_id"] = order.object_id
    objects = {
        name: item.deflate() for name, item in get_all_nested_objects(order).items()
    }
    tree, bare = get_object_tree(order), remove_content_from_message(order)
    orders = [(bare, tree)]

    def receive() -> Any:
        while orders and not (folder / "go").exists():
            time.sleep(0.01)
        return orders.pop() if orders else None

    def send(message: Message, tree: Any, seconds: float) -> tuple[set[str], str]:
        (folder / "reply").write_text(
            "error" if message.has_error() else message.metadata.message_type
        )
        return set(), ""

    content = (folder / "app.fab").read_bytes()
    name, version = get_fab_metadata(content)
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    run = replace(
        Run.create_empty(1),
        fab_id=name,
        fab_version=version,
        fab_hash=fab.hash_str,
        series_id=1,
    )
    return (
        NODE,
        receive,
        send,
        lambda run_id: run,
        lambda fab_hash, run_id: fab,
        lambda run_id, name: objects[name],
        lambda *args: None,
        lambda *args: None,
    )


if __name__ == "__main__":
    folder = Path(sys.argv.pop(1))

    @contextmanager
    def connect(server_address: str, **options: Any) -> Iterator[tuple[Any, ...]]:
        yield connection(folder)

    internal._init_connection = connect
    supernode.main()
