"""Which replies can be averaged: one model like the one that was sent, with a number of records, like most others."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.replies import check_replies, read_model
from fedaux.flower.validation import InvalidReplyError

SENT = {"weight": np.zeros((2, 3), np.float32), "steps": np.array(4)}


def content(value: float = 1.0, metrics: dict[str, Any] | None = None, **arrays: np.ndarray) -> RecordDict:
    model = {"weight": np.full((2, 3), value, np.float32), "steps": np.array(5), **arrays}
    record = ArrayRecord({name: Array(array) for name, array in model.items()})
    return RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 7, "loss": 0.5, **(metrics or {})})})


def reply(node: int, body: RecordDict) -> Message:
    InProcessGrid(lambda message, context: message, 1, {})  # gives messages an identity
    message = Message(body, node, "train")
    message.metadata.__dict__["_src_node_id"] = node
    return message


def test_a_good_reply_is_an_update_of_its_node() -> None:
    (good,), failures = check_replies([reply(3, content(2.0))], SENT, "num-examples", 100)
    assert failures == []
    assert (good.node, good.records) == ("3", 7)
    update = good.update(4, {"parameters": np.ones(6, np.float32)})
    assert (update.client, update.round, update.records, update.noise) == ("3", 4, 7, 0.0)


@pytest.mark.parametrize("size", [0, -1, 101, 0.5, 2.5, float("nan"), float("inf"), [1, 2]], ids=str)
def test_a_size_that_cannot_be_believed_is_refused(size: Any) -> None:
    with pytest.raises(InvalidReplyError, match="whole numbers from 1 to 100"):
        read_model(content(metrics={"num-examples": size}), SENT, "num-examples", 100)


def test_a_whole_number_is_one_whatever_its_type() -> None:
    assert read_model(content(metrics={"num-examples": 60.0}), SENT, "num-examples", 100)[1] == 60
    assert read_model(content(metrics={"n": 3}), SENT, "n", 100)[1] == 3


@pytest.mark.parametrize(
    "body",
    [
        content(float("nan")),
        content(weight=np.zeros((3, 2), np.float32)),
        content(more=np.zeros(1)),
        content(metrics={"extra": 1.0}),
        RecordDict({"arrays": content()["arrays"]}),
        RecordDict({"a": content()["arrays"], "b": content()["arrays"], "metrics": content()["metrics"]}),
    ],
    ids=["nan", "shape", "array", "metric", "no metrics", "two models"],
)
def test_the_odd_reply_out_costs_itself_only(body: RecordDict) -> None:
    replies = [reply(2, content()), reply(3, body), reply(4, content())]
    good, failures = check_replies(replies, SENT, "num-examples", 100)
    assert [each.node for each in good] == ["2", "4"]
    assert [failure.client for failure in failures] == ["3"]
