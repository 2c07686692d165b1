"""Messages to Flower records and back: scalars in a ConfigRecord, arrays in
ArrayRecords; versioned, no pickle.

What a message holds is declared in `fedaux.messages`. Nothing of it is repeated here.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedaux.core.arrays import Arrays
from fedaux.messages import (
    MESSAGE_VERSION,
    Answer,
    EveryOrder,
    Hello,
    HelloOrder,
    check_order,
    fields_of,
)
from fedaux.messages.declaration import ORDERS, Field

# Messages that only grow, by fields with a default: both sides can say in them which
# version they speak.
ANY_VERSION = (HelloOrder, Hello)
REPLY_GROUP = re.compile(r"at-most-([0-9]{1,12})-bytes")
MAX_REPLY_BYTES = 2**26  # of a reply to an order that does not say
T = TypeVar("T", bound=EveryOrder | Hello | Answer)


class MessageError(ValueError):
    """A message that cannot be read."""


def to_array(values: NDArray[Any]) -> Array:
    """Make the same bytes as Flower's `Array(ndarray)`, with one copy of a model
    instead of three.
    """
    values = np.asarray(values, order="C")
    if values.dtype.hasobject:
        raise MessageError(
            f"arrays of {values.dtype} are not sent: they would need pickle"
        )
    header = BytesIO()
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(values))
    return Array(
        str(values.dtype),
        values.shape,
        "numpy.ndarray",
        b"".join([header.getvalue(), values.tobytes()]),
    )


def from_array(array: Array) -> NDArray[Any]:
    """A read-only view of the received bytes: a header that promises more allocates
    nothing.
    """
    stream = BytesIO(array.data)
    try:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("not version 1.0")
        shape, fortran, dtype = npy.read_array_header_1_0(stream)
        if fortran or dtype.hasobject:
            raise ValueError(f"of type {dtype} in Fortran order or with objects")
        return np.frombuffer(array.data, dtype, offset=stream.tell()).reshape(shape)
    except (
        Exception
    ) as error:  # numpy's header parser fails in many ways on hostile bytes
        raise MessageError(f"an array is not what its header says: {error}") from error


class Serializer:
    """Serializes messages. Arrays that go to many clients are serialized once, so they
    are hashed and sent once.
    """

    def __init__(self) -> None:
        self._records: dict[int, tuple[Arrays, ArrayRecord]] = {}

    def serialize(self, item: Any) -> RecordDict:
        scalars: dict[str, Any] = {
            "version": MESSAGE_VERSION,
            "kind": type(item).__name__,
        }
        records: dict[str, ArrayRecord | ConfigRecord] = {}
        for field in fields_of(type(item)):
            value = getattr(item, field.name)
            if not field.has_arrays:
                scalars[field.name] = value
            elif value or not field.may_be_left_out:
                records[field.name] = self._arrays(value)
        return RecordDict({"fedaux": ConfigRecord(scalars), **records})

    def _arrays(self, arrays: Arrays) -> ArrayRecord:
        cached = self._records.get(id(arrays))
        if cached is None or cached[0] is not arrays:
            cached = (
                arrays,
                ArrayRecord({name: to_array(array) for name, array in arrays.items()}),
            )
            self._records[id(arrays)] = cached
        return cached[1]


def serialize(item: EveryOrder | Hello | Answer) -> RecordDict:
    return Serializer().serialize(item)


def reply_group(limit: int) -> str:
    """The group id of an order: the bytes that its reply may have, for the SuperLink to
    enforce.
    """
    return f"at-most-{limit}-bytes"


def reply_bytes(group_id: str) -> int:
    """The bytes that a reply may have, from the group id of its order."""
    match = REPLY_GROUP.fullmatch(group_id)
    return int(match[1]) if match else MAX_REPLY_BYTES


def make_reply(message: Message, item: Hello | Answer) -> Message:
    return Message(serialize(item), reply_to=message)


def deserialize(kind: type[T], content: RecordDict) -> T:
    """The message, or an error that says what is wrong with it: an order's fields are
    all checked here.

    A reply's fields have the right Python types. `messages.check_reply` compares them
    with the order.
    """
    # content[...] and not content.array_records: the latter puts the message into a
    # reference cycle
    record = content.get("fedaux")
    if not isinstance(record, ConfigRecord):
        raise MessageError(
            "the message has no fedaux record. Is the other side running fedaux?"
        )
    scalars = dict(record)
    _check_version(kind, scalars)
    values = {
        field.name: _read(kind, field, scalars, content) for field in fields_of(kind)
    }
    item = kind(**values)
    if kind in ORDERS:
        check_order(item)  # type: ignore[arg-type]
    return item


def _check_version(kind: type, scalars: dict[str, Any]) -> None:
    version = scalars.get("version")
    # True is 1, and no version
    same_version = type(version) is int and version == MESSAGE_VERSION
    if kind not in ANY_VERSION and not same_version:
        # a migration of older messages would go here
        raise MessageError(
            f"the message has version {version!r}, this side speaks {MESSAGE_VERSION}. "
            "Upgrade the older one."
        )
    if scalars.get("kind") != kind.__name__:
        raise MessageError(
            f"a {scalars.get('kind')!r} came where a {kind.__name__} was expected"
        )


def _read(
    kind: type, field: Field, scalars: dict[str, Any], content: RecordDict
) -> Any:
    """Return the value of a field; where an older release does not send it, its
    default.
    """
    if field.has_arrays:
        record = content.get(field.name)
        if isinstance(record, ArrayRecord):
            return {name: from_array(array) for name, array in record.items()}
        if record is None and field.may_be_left_out:
            return {}
        raise MessageError(
            f"{kind.__name__}.{field.name} should be arrays, it is {record!r}"
        )
    default = field.default if kind in ANY_VERSION else None
    value = scalars.get(field.name, default)
    if type(value) is not field.kind:
        raise MessageError(
            f"{kind.__name__}.{field.name} should be {field.kind.__name__}, it is "
            f"{value!r}"
        )
    return value
