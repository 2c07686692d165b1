"""Clients are found by their own names, whatever node speaks for them now."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo

from fedaux.core.progress import ProgressEvent, SitesConnected, report_to
from fedaux.flower import node_registry as node_registry
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.node_registry import MissingSitesError, NodeRegistry
from fedaux.flower.serialization import deserialize, make_reply
from fedaux.messages import MESSAGE_VERSION, Hello, HelloOrder
from fedaux.report.progress import describe

CLASSES = ["cat", "dog"]
app = ClientApp()
said: dict[int, Any] = {}


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    deserialize(HelloOrder, message.content)
    answer = said[int(context.node_config["partition-id"])]
    if answer is None:
        raise OSError("no such folder")
    return make_reply(message, Hello(*answer))


def answer(
    *clients: str, classes: list[str] = CLASSES, speaks: int = MESSAGE_VERSION
) -> tuple[str, str, int]:
    return json.dumps(clients), json.dumps(classes), speaks


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What is reported during a test, as an operator reads it."""
    lines: list[str] = []
    with report_to(lambda event: lines.append(describe(event))):
        yield lines


def made(answers: list[Any], clients: list[str]) -> tuple[NodeRegistry, InProcessGrid]:
    said.clear()
    said.update(enumerate(answers))
    grid = InProcessGrid(app, len(answers), {})
    return NodeRegistry(grid, clients, CLASSES), grid


def test_nodes_say_whom_they_speak_for_and_may_speak_for_several() -> None:
    found, grid = made(
        [answer("berlin"), answer("paris", "rome")], ["paris", "berlin", "rome"]
    )
    first, second = grid.get_node_ids()
    assert found.refresh() == {"berlin": first, "paris": second, "rome": second}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (None, "error 2: OSError: no such folder"),
        (answer("oslo"), "it speaks for ['oslo'], and federation.sites does not"),
        (answer(), "it speaks for []"),
        (
            answer("paris", classes=["dog", "cat"]),
            "its classes are ['dog', 'cat'], here they are ['cat', 'dog']",
        ),
        (answer("paris", classes=["cat", "dog", "cow"]), "Declare data.classes alike"),
        (
            answer("paris", classes=["cat"]),
            "its classes are ['cat'], here they are ['cat', 'dog']",
        ),
        (answer("berlin"), "another node already speaks for berlin"),
        (("{", "[]", MESSAGE_VERSION), "not JSON"),
        (('{"a": 1}', "[]", MESSAGE_VERSION), "it speaks for"),
    ],
)
def test_a_node_that_answers_wrongly_is_left_out(
    wrong: Any, reason: str, told: list[str]
) -> None:
    found, grid = made([answer("berlin"), wrong], ["berlin", "paris"])
    assert found.refresh() == {"berlin": next(iter(grid.get_node_ids()))}
    assert reason in told[0]


def test_what_nodes_run_is_reported_also_of_one_that_comes_later() -> None:
    events: list[ProgressEvent] = []
    found, grid = made(
        [(*answer("berlin"), "fedaux 1\n"), answer("paris")], ["berlin", "paris"]
    )
    with report_to(events.append):
        found.wait_for_clients(10, 2)
        assert events[-1] == SitesConnected(
            "sites connected", 2, 2, phase="connect", versions={"berlin": "fedaux 1 "}
        )
        events.clear()
        assert len(found.refresh()) == 2
        assert events == []
        # it has gone, and comes back upgraded
        del found._known[next(iter(grid.get_node_ids()))]
        said[0] = (*answer("berlin"), "fedaux 2")
        assert len(found.refresh()) == 2
    (event,) = events
    assert isinstance(event, SitesConnected)
    assert (event.phase, event.versions["berlin"]) == ("", "fedaux 2")


def named(grid: InProcessGrid, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Nodes whose keys were registered under these names."""
    nodes = [
        NodeInfo(node_id=node, name=name)
        for node, name in zip(grid.get_node_ids(), names, strict=True)
    ]
    monkeypatch.setattr(grid, "get_nodes", lambda: nodes)


def test_a_node_speaks_for_the_name_of_its_key_and_for_nobody_else(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """A site registered as rome answered as "rome,oslo", and the real oslo was left
    out.
    """
    found, grid = made([answer("rome", "oslo"), answer("oslo")], ["rome", "oslo"])
    named(grid, monkeypatch, "rome", "oslo")
    rome, oslo = grid.get_node_ids()
    assert found.refresh() == {"oslo": oslo}
    assert told == [
        f"node {rome} is excluded: it speaks for oslo, and its key is registered for "
        "rome"
    ]


def test_a_key_may_be_registered_for_several_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, grid = made([answer("rome", "oslo")], ["rome", "oslo"])
    named(grid, monkeypatch, "oslo, rome")
    assert set(found.refresh()) == {"rome", "oslo"}


class Silent(InProcessGrid):
    """A SuperLink answers for nodes that do not, the first times."""

    codes: list[int]

    def _handle(self, message: Message) -> Message:
        return (
            Message(Error(self.codes.pop(), ""), reply_to=message)
            if self.codes
            else super()._handle(message)
        )


@pytest.mark.parametrize("code", [3, 5, 8])
def test_a_node_that_did_not_answer_in_time_is_asked_again(
    code: int, told: list[str]
) -> None:
    """One expired question shut a connected site out for good."""
    found, grid = made([answer("berlin")], ["berlin"])
    grid.__class__, grid.codes = Silent, [code]  # type: ignore[assignment,attr-defined]
    assert found.refresh() == {}
    assert found.refresh() == {"berlin": next(iter(grid.get_node_ids()))}
    assert told == []


def test_the_node_that_a_site_came_back_as_takes_over_when_the_old_one_is_gone(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    found, grid = made([answer("berlin"), answer("berlin")], ["berlin"])
    old, new = grid.get_node_ids()
    assert [found.refresh() for _ in range(3)] == [{"berlin": old}] * 3
    assert told == [f"node {new} is excluded: another node already speaks for berlin"]
    monkeypatch.setattr(grid, "get_node_ids", lambda: [new])
    assert found.refresh() == {"berlin": new}


def test_waiting_ends_with_enough_clients_or_says_who_is_missing(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    monkeypatch.setattr(node_registry, "POLL_INTERVAL", 0.01)
    found, _ = made([answer("berlin")], ["berlin", "paris"])
    assert list(found.wait_for_clients(0.05, minimum=1)) == ["berlin"]
    with pytest.raises(
        MissingSitesError,
        match=r"1 of 2 clients connected within 0\.05 s.*Missing: paris",
    ):
        found.wait_for_clients(0.05, minimum=2)
    assert told.count("sites connected: 1/2") == 2


@pytest.mark.parametrize("speaks", [MESSAGE_VERSION - 1, MESSAGE_VERSION + 1])
def test_a_node_of_another_version_is_left_out_and_told_so(
    speaks: int, told: list[str]
) -> None:
    """Hello is read in any version: otherwise nobody could say which one it is."""
    found, _ = made([answer("a", speaks=speaks)], ["a"])
    assert found.refresh() == {}
    assert (
        f"it speaks version {speaks} of messages, here it is {MESSAGE_VERSION}: upgrade the "
        "older one" in told[0]
    )
