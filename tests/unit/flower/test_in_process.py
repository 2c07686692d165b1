"""The grid in this process behaves as Flower's own, one client at a time."""

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedaux.flower.in_process import InProcessGrid

app = ClientApp()
ran: list[int] = []


@app.train()
def train(message: Message, context: Context) -> Message:
    """Count its messages in the node's state; do as the message says."""
    ran.append(int(context.node_config["partition-id"]))
    match message.content.config_records["order"]["do"]:
        case "raise":
            raise ValueError("no such file: data.npz")
        case "stop":
            raise KeyboardInterrupt
    seen = (
        int(context.state.config_records.get("seen", ConfigRecord({"n": 0}))["n"]) + 1
    )
    context.state["seen"] = ConfigRecord({"n": seen})
    return Message(
        RecordDict(
            {"reply": ConfigRecord({"n": seen, "vault": context.node_config["vault"]})}
        ),
        reply_to=message,
    )


@pytest.fixture
def grid() -> InProcessGrid:
    ran.clear()
    return InProcessGrid(app, 3, {"vault": "here"})


def message(node: int, do: str = "", kind: str = "train") -> Message:
    return Message(RecordDict({"order": ConfigRecord({"do": do})}), node, kind)


def seen(reply: Message) -> int:
    return int(reply.content.config_records["reply"]["n"])


def test_settings_are_each_nodes_own_and_the_runs_are_empty(
    grid: InProcessGrid,
) -> None:
    contexts = list(grid._contexts.values())
    assert [dict(one.node_config) for one in contexts] == [
        {"partition-id": i, "vault": "here"} for i in range(3)
    ]
    assert all(not one.run_config for one in contexts)
    contexts[0].node_config["vault"] = "there"
    assert contexts[1].node_config["vault"] == "here"


def test_state_survives_between_messages_and_belongs_to_one_node(
    grid: InProcessGrid,
) -> None:
    assert [
        seen(reply)
        for reply in grid.send_and_receive([message(2), message(2), message(3)])
    ] == [1, 2, 1]
    assert [seen(reply) for reply in grid.send_and_receive([message(2)])] == [3]


def test_an_exception_is_an_error_reply(grid: InProcessGrid) -> None:
    bad, good = grid.send_and_receive([message(2, "raise"), message(3)])
    assert bad.has_error()
    assert (bad.error.code, bad.error.reason) == (
        2,
        "ValueError: no such file: data.npz",
    )
    assert not good.has_error()


def test_an_interrupt_stops_the_run(grid: InProcessGrid) -> None:
    with pytest.raises(KeyboardInterrupt):
        grid.send_and_receive([message(2, "stop"), message(3)])
    assert ran == [0]
