"""Orders out, replies back one at a time; whatever a client does wrong costs that
client only.
"""

import time
import weakref
from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message
from flwr.clientapp import ClientApp

from fedaux.core.event_log import LONGEST_TEXT
from fedaux.core.failures import Failure, Refusal
from fedaux.flower import federation
from fedaux.flower.federation import CHUNK, GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.serialization import deserialize, serialize
from fedaux.messages import Reply, TrainOrder, Update
from helpers.samples import release, train_order, update, weights

app = ClientApp()
ran: list[str] = []


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer honestly, unless the order's prototype says otherwise."""
    order = deserialize(TrainOrder, message.content)
    ran.append(order.client)
    reply = serialize(
        update(
            order.client,
            round=order.round,
            records=int(context.node_config["partition-id"]) + 1,
        )
    )
    match order.prototype:
        case "raise":
            raise MemoryError("out of memory")
        case "nan":
            reply = serialize(update(order.client, weights=weights(np.nan)))
        case "impostor":
            reply = serialize(update("somebody else"))
        case "release":
            reply = serialize(release(order.client))
        case "escape":
            return Message(
                Error(2, f"\x1b[2K\rall is well\u202e{'x' * 10**6}"), reply_to=message
            )
        case "escape in a reply":
            reply["fedaux"]["loss"] = "\x1b[2K\rall is well" + "x" * 10**6  # type: ignore[index]
        case "refuse":
            return Message(Error(2, Refusal.BUDGET.value), reply_to=message)
        case "junk":
            reply["weights"] = ArrayRecord(
                {"parameters": Array("float32", (6,), "numpy.ndarray", b"junk")}
            )
        case "slow":
            time.sleep(0.02)
    return Message(reply, reply_to=message)


class SlowGrid(InProcessGrid):
    """Like a real one: replies come after some looks, several at a time and in any
    order.
    """

    looks: int
    asked: list[int]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        identities = list(message_ids)
        self.asked = [*getattr(self, "asked", []), len(identities)]
        return (
            list(super().pull_messages(reversed(identities)))
            if len(self.asked) > self.looks
            else []
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation, "POLL_INTERVAL", 0.002)
    ran.clear()


def clients(
    count: int, kind: type[InProcessGrid] = InProcessGrid, timeout: float = 60.0
) -> GridFederation:
    grid = kind(app, count, {})
    return GridFederation(
        grid, {f"c{i:02d}": node for i, node in enumerate(grid.get_node_ids())}, timeout
    )


def ask(asked: GridFederation, **behaviour: str) -> dict[str, Reply]:
    orders = [
        train_order(name, prototype=behaviour.get(name, "honest"))
        for name in list(asked.nodes)
    ]
    replies = list(asked.ask(orders))
    assert len(replies) == len(orders)
    return {reply.client: reply for reply in replies}


def test_replies_stream_and_are_dropped() -> None:
    asked = clients(2 * CHUNK + 3)
    stream = asked.ask([train_order(name) for name in list(asked.nodes)])
    assert ran == []
    previous: weakref.ref[Reply] | None = None
    for done, name in enumerate(list(asked.nodes), 1):
        reply = next(stream)
        assert reply.client == name
        assert len(ran) == done  # the next client has not begun
        assert previous is None or previous() is None  # and the last reply is gone
        previous = weakref.ref(reply)
        del reply


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("raise", "error 2: MemoryError: out of memory"),
        (
            "nan",
            "its weights should be 'parameters': finite numbers, but it is float32(6,)",
        ),
        ("impostor", "answers for 'somebody else'"),
        ("refuse", "its privacy budget does not allow it"),
        ("release", "'Release' came where a Update was expected"),
        ("junk", "an array is not what its header says"),
        ("escape", "error 2:  [2K all is well"),
        (
            "escape in a reply",
            r"Update.loss should be float, it is '\x1b[2K\rall is",
        ),
    ],
)
def test_a_bad_client_costs_only_itself(behaviour: str, reason: str) -> None:
    found = ask(clients(12), c03=behaviour)
    assert isinstance(found["c03"], Failure)
    assert reason in found["c03"].reason
    assert found["c03"].reason.isprintable()
    assert len(found["c03"].reason) <= LONGEST_TEXT
    assert sum(isinstance(reply, Update) for reply in found.values()) == 11


def test_replies_may_come_late_and_in_any_order_but_never_too_many_at_once() -> None:
    class Late(SlowGrid):
        looks = 5

    asked = clients(CHUNK + 2, Late)
    found = ask(asked)
    assert all(isinstance(reply, Update) for reply in found.values())
    assert asked.grid.asked[:4] == [CHUNK, 2, CHUNK, 2]
    assert list(found) != list(asked.nodes)


def test_one_silent_client_does_not_silence_the_others() -> None:
    class Deaf(InProcessGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            (identity,) = super().push_messages(messages)
            if self._pending[identity].metadata.dst_node_id == 3:
                del self._pending[identity]
            return [identity]

    found = ask(clients(3, Deaf, timeout=0.05))
    assert found["c01"] == Failure("c01", "no answer within 0.05 s", "no-answer")
    assert isinstance(found["c00"], Update)
    assert isinstance(found["c02"], Update)


def test_errors_made_on_the_way_find_their_client() -> None:
    class Broken(InProcessGrid):
        """A SuperLink speaks for nodes that are gone: its errors come from node 1."""

        def _handle(self, message: Message) -> Message:
            reply = Message(Error(5, "node unavailable"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = 1
            return reply

    found = ask(clients(2, Broken))
    assert list(found.values()) == [
        Failure(name, "error 5: node unavailable", "no-answer")
        for name in ("c00", "c01")
    ]


class Dripping(InProcessGrid):
    """One reply, then a look in vain, then the next reply."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.looks = getattr(self, "looks", 0) + 1
        return (
            list(super().pull_messages(list(message_ids)[:1])) if self.looks % 2 else []
        )


def test_our_own_work_on_replies_costs_nobodys_patience() -> None:
    asked = clients(4, Dripping, timeout=0.02)
    found = []
    for reply in asked.ask([train_order(name) for name in list(asked.nodes)]):
        time.sleep(0.03)  # longer than the timeout, with each reply
        found.append(type(reply))
    assert found == [Update] * 4


def test_waiting_costs_patience_even_where_replies_drip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(federation, "POLL_INTERVAL", 0.02)
    found = list(ask(clients(6, Dripping, timeout=0.05)).values())
    assert isinstance(found[0], Update)
    assert found[-1] == Failure("c05", "no answer within 0.05 s", "no-answer")


def test_a_reply_that_comes_twice_is_used_once() -> None:
    class Echo(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            for reply in super().pull_messages(message_ids):
                yield from (reply, reply)

    assert len(ask(clients(3, Echo))) == 3


def test_a_broadcast_is_packed_once() -> None:
    asked, shared = clients(3), weights()
    stream = asked.ask(
        [train_order(name, weights=shared) for name in list(asked.nodes)]
    )
    next(stream)  # the first is answered, the others still wait
    first, second = asked.grid._pending.values()
    assert (
        first.content.array_records["weights"]
        is second.content.array_records["weights"]
    )


def test_a_reply_to_an_earlier_round_is_not_used_again() -> None:
    """Replayed as the answer to this round's order it is refused; under its own old
    address nobody reads it.
    """
    old = serialize(update("c00", round=1))

    class Replaying(InProcessGrid):
        def _handle(self, message: Message) -> Message:
            return Message(old, reply_to=message)

    found = ask(clients(1, Replaying))
    assert found["c00"] == Failure("c00", "its round should be 2, but it is 1")

    class Haunted(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            replies = list(super().pull_messages(message_ids))
            for reply in replies:
                reply.metadata.__dict__["_reply_to_message_id"] = "of a round long gone"
            return replies

    found = ask(clients(1, Haunted, timeout=0.05))
    assert found["c00"] == Failure("c00", "no answer within 0.05 s", "no-answer")


class Lossy(InProcessGrid):
    """Loses the first messages to node 3, or their replies, each with one of Flower's
    codes.
    """

    codes: tuple[int, ...]

    def _handle(self, message: Message) -> Message:
        if message.metadata.dst_node_id == 3 and self.codes:
            code, self.codes = self.codes[0], self.codes[1:]
            return Message(Error(code, "lost"), reply_to=message)
        return super()._handle(message)


def lossy(*codes: int, retries: int = 2) -> GridFederation:
    asked = clients(3, Lossy)
    asked.grid.codes, asked.retries = codes, retries  # type: ignore[attr-defined]
    return asked


@pytest.mark.parametrize("codes", [(3,), (5,), (8,), (5, 8)], ids=str)
def test_an_order_without_an_answer_is_sent_again(codes: tuple[int, ...]) -> None:
    found = ask(lossy(*codes))
    assert [type(reply) for reply in found.values()] == [Update] * 3
    assert sorted(ran) == ["c00", "c01", "c02"]


def test_it_is_sent_again_so_often_and_no_more() -> None:
    asked = lossy(8, 8, 8, 8, 8)
    assert ask(asked)["c01"] == Failure("c01", "error 8: lost", "no-answer")
    assert len(asked.grid.codes) == 2
    assert ask(lossy(5, retries=0))["c01"] == Failure(
        "c01", "error 5: lost", "no-answer"
    )


def test_a_client_that_refuses_is_not_asked_again() -> None:
    asked = clients(2)
    asked.retries = 5
    assert ask(asked, c01="refuse")["c01"] == Failure(
        "c01", Refusal.BUDGET.description, "budget"
    )
    assert ran.count("c01") == 1


class Nodes:
    """Says which clients are there: node 3's is away for so many looks."""

    def __init__(self, asked: GridFederation, away: int) -> None:
        self.nodes, self.away, self.looks = dict(asked.nodes), away, 0

    def __call__(self) -> dict[str, int]:
        self.looks += 1
        gone = 1 < self.looks <= 1 + self.away
        return {
            name: node for name, node in self.nodes.items() if not (gone and node == 3)
        }


def test_a_client_that_drops_out_in_a_round_is_waited_for_and_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(federation, "REFRESH_INTERVAL", 0.002)
    asked = lossy(5)
    asked.refresh_nodes, asked.reconnect_timeout = Nodes(asked, away=3), 5.0
    found = ask(asked)
    assert list(found) == ["c00", "c02", "c01"]
    assert isinstance(found["c01"], Update)


def test_one_that_does_not_come_back_is_given_up_and_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(federation, "REFRESH_INTERVAL", 0.002)
    asked = lossy(5)
    asked.refresh_nodes, asked.reconnect_timeout = Nodes(asked, away=10**9), 0.05
    names = list(asked.nodes)
    replies = [list(asked.ask([train_order(name) for name in names])) for _ in range(2)]
    assert replies[0][-1] == Failure("c01", "error 5: lost", "no-answer")
    assert replies[1][0] == Failure("c01", "not connected", "no-answer")  # at once
    asked.refresh_nodes = Nodes(asked, away=0)  # and taken in again when it is there
    asked.refresh_nodes.nodes = dict(zip(names, asked.grid.get_node_ids(), strict=True))
    assert all(
        isinstance(reply, Update)
        for reply in asked.ask([train_order(name) for name in names])
    )


def test_one_that_is_gone_when_the_round_begins_may_come_back_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(federation, "REFRESH_INTERVAL", 0.002)
    asked = lossy()
    asked.refresh_nodes, asked.reconnect_timeout = Nodes(asked, away=3), 5.0
    asked.refresh_nodes.looks = 1
    assert isinstance(ask(asked)["c01"], Update)
