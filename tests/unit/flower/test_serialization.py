"""What is packed here is unpacked there, to the bit; what is not what it says it is, is
refused.
"""

import io
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedaux.core.failures import OrderError
from fedaux.flower.serialization import (
    MessageError,
    Serializer,
    deserialize,
    from_array,
    serialize,
    to_array,
)
from fedaux.messages import (
    MESSAGE_VERSION,
    ORDERS,
    Hello,
    HelloOrder,
    LookOrder,
    SumsOrder,
    TrainOrder,
    Update,
    fields_of,
)
from fedaux.messages.declaration import REPLIES
from helpers.samples import (
    consent,
    counts,
    every_order,
    hello,
    masked,
    release,
    sum_reply,
    sums,
    sums_order,
    train_order,
    update,
)

ITEMS = [
    *every_order(),
    hello(),
    consent(),
    release(),
    sums(),
    update(),
    counts(),
    sum_reply(),
    masked(),
]


def test_every_message_has_a_sample() -> None:
    assert {type(item) for item in ITEMS} == {*ORDERS, *REPLIES}


def through_protobuf(content: RecordDict) -> RecordDict:
    """As the simulation runtime carries it."""
    proto = recorddict_to_proto(content)
    return recorddict_from_proto(type(proto).FromString(proto.SerializeToString()))


def through_objects(content: RecordDict) -> RecordDict:
    """As SuperLink and SuperNodes carry it: one blob of bytes for every nested
    object.
    """
    blobs = {
        identity: part.deflate()
        for identity, part in get_all_nested_objects(content).items()
    }
    inflated = inflate_object_from_contents(content.object_id, blobs)
    assert isinstance(inflated, RecordDict)
    return inflated


def assert_same(one: Any, two: Any) -> None:
    assert type(one) is type(two)
    for field in fields(one):
        ours, theirs = getattr(one, field.name), getattr(two, field.name)
        if isinstance(ours, dict):
            assert list(ours) == list(theirs)
            for name, array in ours.items():
                assert (array.dtype, array.shape) == (
                    theirs[name].dtype,
                    theirs[name].shape,
                )
                assert array.tobytes() == theirs[name].tobytes()
        else:
            assert type(ours) is type(theirs)
            assert ours == theirs


@pytest.mark.parametrize(
    "carry",
    [lambda content: content, through_protobuf, through_objects],
    ids=["memory", "protobuf", "objects"],
)
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_round_trip(item: Any, carry: Any) -> None:
    assert_same(item, deserialize(type(item), carry(serialize(item))))


@pytest.mark.parametrize(
    "array",
    [np.zeros((0, 4), np.float16), np.array([np.nan, np.inf, -0.0]), np.array([True])],
)
def test_odd_arrays_survive(array: np.ndarray) -> None:
    item = update(weights={"x": array})
    assert_same(item, deserialize(Update, through_objects(serialize(item))))


def test_what_was_sent_cannot_be_changed_through_what_was_received() -> None:
    """In process many clients read one broadcast."""
    content = serialize(update())
    with pytest.raises(ValueError, match="read-only"):
        deserialize(Update, content).weights["parameters"][:] = 0


def test_arrays_that_came_and_went_are_not_mistaken_for_others() -> None:
    serializer = Serializer()
    for value in range(50):  # a freed dict's id is soon used again
        content = serializer.serialize(update(weights={"x": np.array([value])}))
        assert deserialize(Update, content).weights["x"] == [value]


def changed(**facts: Any) -> RecordDict:
    content = serialize(update())
    merged = {**content.config_records["fedaux"], **facts}
    content["fedaux"] = ConfigRecord(
        {key: value for key, value in merged.items() if value is not None}
    )
    return content


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (RecordDict(), "no fedaux record. Is the other side running fedaux?"),
        (
            changed(version=0),
            f"has version 0, this side speaks {MESSAGE_VERSION}. Upgrade the older one",
        ),
        (changed(version=None), "has version None"),
        (changed(version=True), "has version True"),
        (changed(kind="Release"), "'Release' came where a Update was expected"),
        (changed(kind=None), "None came where a Update was expected"),
        (changed(loss=None), "Update.loss should be float, it is None"),
        (changed(loss="0.5"), "Update.loss should be float, it is '0.5'"),
        (changed(loss=1), "Update.loss should be float, it is 1"),
        (changed(records=7.0), "Update.records should be int, it is 7.0"),
        (changed(records=True), "Update.records should be int, it is True"),
        (changed(client=3), "Update.client should be str, it is 3"),
        (changed(round=[1, 2]), r"Update.round should be int, it is [1, 2]"),
    ],
)
def test_what_is_wrong_is_said(content: RecordDict, fragment: str) -> None:
    with pytest.raises(MessageError) as caught:
        deserialize(Update, content)
    assert fragment in str(caught.value)


def test_objects_are_not_packed() -> None:
    with pytest.raises(
        MessageError, match="arrays of object are not sent: they would need pickle"
    ):
        serialize(update(weights={"x": np.array([object()])}))


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}]), allow_pickle=True)
    return buffer.getvalue()


def zipped() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, np.ones(3))
    return buffer.getvalue()


def headed(header: str) -> bytes:
    """A header of one's own, and no data."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


HOSTILE = {
    "a pickle": ("numpy.ndarray", pickled()),
    "junk": ("numpy.ndarray", b"junk"),
    "nothing": ("numpy.ndarray", b""),
    "a zip": ("numpy.ndarray", zipped()),
    "terabytes": (
        "numpy.ndarray",
        headed("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"),
    ),
    "a shape of truth": (
        "numpy.ndarray",
        headed("{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }"),
    ),
    "an open brace": ("numpy.ndarray", headed("{")),
    "endless depth": ("numpy.ndarray", headed("-" * 5000 + "1")),
    "another kind": ("pickle", b""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bytes_that_are_no_array_are_a_message_error(name: str) -> None:
    content = serialize(update())
    kind, data = HOSTILE[name]
    content["weights"] = ArrayRecord({"parameters": Array("float32", (6,), kind, data)})
    with pytest.raises(MessageError, match="an array is not what its header says"):
        deserialize(Update, content)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6.0).reshape(2, 3).T,
        np.array(2.5),
        np.zeros((0, 3), bool),
    ],
)
def test_arrays_are_written_as_flower_writes_them(array: np.ndarray) -> None:
    assert to_array(array) == Array(np.asarray(array, order="C"))
    assert np.array_equal(from_array(Array(np.asarray(array, order="C"))), array)


def test_empty_arrays_that_may_be_absent_are_not_sent() -> None:
    """Every record of a message is a request of its own between SuperLink and
    SuperNode.
    """
    order = train_order(extractor={}, broadcast={}, public={}, fit={}, client_fit={})
    assert set(serialize(order)) == {"fedaux", "weights"}
    assert_same(order, deserialize(TrainOrder, through_objects(serialize(order))))


def test_a_record_of_another_kind_is_no_array() -> None:
    content = serialize(train_order())
    content["broadcast"] = ConfigRecord({"x": 1})
    with pytest.raises(
        MessageError, match=r"TrainOrder\.broadcast should be arrays, it is \{'x': 1\}"
    ):
        deserialize(TrainOrder, content)


def in_version(item: Any, version: int) -> RecordDict:
    content = serialize(item)
    content["fedaux"]["version"] = version  # type: ignore[index]
    return content


def test_hello_is_read_in_any_version_and_nothing_else_is() -> None:
    """So that a side can be told to upgrade, in words, by one that it cannot otherwise
    talk to.
    """
    for item in (HelloOrder(), Hello("[]", "[]", MESSAGE_VERSION + 1)):
        assert_same(
            item, deserialize(type(item), in_version(item, MESSAGE_VERSION + 1))
        )
    content = serialize(Hello("[]", "[]", MESSAGE_VERSION, "fedaux 0.2"))
    del content["fedaux"]["versions"]  # type: ignore[attr-defined]
    # of an older release
    assert_same(Hello("[]", "[]", MESSAGE_VERSION), deserialize(Hello, content))
    del content["fedaux"]["classes"]  # type: ignore[attr-defined]
    with pytest.raises(MessageError, match=r"Hello\.classes should be str, it is None"):
        deserialize(Hello, content)
    others = [item for item in ITEMS if not isinstance(item, HelloOrder | Hello)]
    assert len(others) == len(ITEMS) - 2
    for item in others:
        with pytest.raises(
            MessageError,
            match=f"has version {MESSAGE_VERSION + 1}, this side speaks {MESSAGE_VERSION}",
        ):
            deserialize(type(item), in_version(item, MESSAGE_VERSION + 1))


@pytest.mark.parametrize("item", ITEMS[1:], ids=lambda item: type(item).__name__)
def test_no_field_of_a_message_has_a_default_on_its_way(item: Any) -> None:
    """Only a hello may lack a field, and only arrays that may be empty a record."""
    for field in fields_of(type(item)):
        content = serialize(item)
        if field.has_arrays:
            content.pop(field.name, None)
        else:
            del content["fedaux"][field.name]  # type: ignore[attr-defined]
        if isinstance(item, LookOrder) and field.name == "weights":
            # its tallies are of what a model says
            with pytest.raises(OrderError, match=r"LookOrder\.weights must be arrays"):
                deserialize(LookOrder, content)
        elif field.may_be_left_out:
            assert getattr(deserialize(type(item), content), field.name) == {}
        elif isinstance(item, Hello) and field.name == "versions":
            assert deserialize(Hello, content).versions == ""
        else:
            with pytest.raises(
                MessageError, match=rf"{type(item).__name__}\.{field.name} should be"
            ):
                deserialize(type(item), content)


def test_the_fields_of_an_order_are_checked_when_it_is_read() -> None:
    content = serialize(train_order())
    content["fedaux"]["lr"] = float("nan")  # type: ignore[index]
    with pytest.raises(
        OrderError,
        match=r"TrainOrder\.lr must be a number from 1e-30 to 1e\+30, but it is nan",
    ):
        deserialize(TrainOrder, content)
    content = serialize(sums_order(width=0))
    with pytest.raises(
        OrderError,
        match=r"SumsOrder\.width must be an integer from 1 to 1048576, but it is 0",
    ):
        deserialize(SumsOrder, content)
