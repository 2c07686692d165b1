"""Messages out, replies as they come; `test_federation.py` has what becomes of them."""

from collections.abc import Iterable

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fedaux.flower import mailbox
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.mailbox import CHUNK, Mailbox, Patience, is_lost, stream_replies


def message(node: int) -> Message:
    return Message(RecordDict({"to": ConfigRecord({"node": node})}), node, "query.any")


def grid(nodes: int, kind: type[InProcessGrid] = InProcessGrid) -> InProcessGrid:
    return kind(lambda message, context: Message(message.content, reply_to=message), nodes, {})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "POLL_INTERVAL", 0.001)


def test_a_reply_comes_under_the_key_of_its_message_and_more_may_be_sent_meanwhile() -> None:
    box = Mailbox[str](grid(CHUNK + 4))
    for node in range(2, CHUNK + 4):
        box.send(f"node {node}", message(node))
    found = []
    for key, reply in box.look():
        found.append(key)
        assert reply.content["to"]["node"] == int(key.split()[1])  # type: ignore[index]
        if key == "node 2":
            box.send("node 13", message(13))
    assert found == [f"node {node}" for node in range(2, CHUNK + 4)]
    assert box.unanswered == ["node 13"]
    assert [key for key, _ in box.look()] == ["node 13"]


def test_what_never_came_is_said_at_the_end() -> None:
    class Deaf(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            return super().pull_messages(list(message_ids)[:1] if len(self._pending) > 1 else [])

    found = dict(stream_replies(grid(3, Deaf), [(node, message(node)) for node in (2, 3, 4)], 0.01))
    assert [key for key, reply in found.items() if reply is None] == [4]


def test_patience_is_taken_by_waiting_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(mailbox.time, "sleep", pauses.append)
    patience = Patience(0.004)
    assert [patience.wait(arrived) for arrived in (False, True, False, False, False, True)] == [
        *[True] * 4,
        False,
        True,
    ]
    assert pauses == [0.001, 0.001, 0.002]
    assert patience.waited == pytest.approx(0.004)


@pytest.mark.parametrize(("code", "lost"), [(2, False), (3, True), (5, True), (6, False), (8, True)])
def test_errors_that_mean_silence(code: int, lost: bool) -> None:
    grid(1)
    assert is_lost(Message(Error(code, "any"), reply_to=message(2))) == lost
