"""Messages to Flower records and back: scalars in a ConfigRecord, arrays in ArrayRecords; versioned, no pickle."""

from __future__ import annotations

import dataclasses
import re
from io import BytesIO
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedaux.core.messages import (
    VERSION,
    Answer,
    Arrays,
    Hello,
    HelloOrder,
    Masked,
    Order,
    PrepareOrder,
    Release,
    SumOrder,
    SumReply,
    Sums,
    SumsOrder,
    TrainOrder,
    Update,
)
from fedaux.core.order_fields import FIELDS as ORDER_FIELDS
from fedaux.core.order_fields import check_order

MESSAGE_TYPES: dict[type, str] = {
    HelloOrder: "query.hello",
    PrepareOrder: "query.prepare",
    SumsOrder: "query.sums",
    SumOrder: "query.sum",
    TrainOrder: "train",
}
KINDS = (HelloOrder, Hello, PrepareOrder, SumsOrder, TrainOrder, SumOrder, Release, Sums, Update, SumReply, Masked)

ANY_VERSION = (HelloOrder, Hello)  # they only grow, by fields with a default: both can say which version they speak
T = TypeVar("T", bound=HelloOrder | Hello | Order | Answer)


REPLY_GROUP = re.compile(r"at-most-([0-9]{1,12})-bytes")
MAX_REPLY_BYTES = 2**26  # of a reply to an order that does not say


class MessageError(ValueError):
    """A message that cannot be read."""


class Field(NamedTuple):
    name: str
    type: type
    required: bool  # arrays with a default are not sent where there are none: every record is a request
    default: Any  # of a field that an older release does not send

    @property
    def arrays(self) -> bool:
        return self.type is ArrayRecord


def fields(kind: type) -> tuple[Field, ...]:
    """The fields of a message, as they are sent."""
    hints = get_type_hints(kind)
    types = {name: ArrayRecord if hint == Arrays else hint for name, hint in hints.items()}
    missing, grows = dataclasses.MISSING, kind in ANY_VERSION
    return tuple(
        Field(
            f.name, types[f.name], f.default_factory is missing, f.default if grows and f.default != missing else None
        )
        for f in dataclasses.fields(kind)
    )


# once: to evaluate annotations takes longer than a small message
FIELDS: dict[type, tuple[Field, ...]] = {kind: fields(kind) for kind in KINDS}


def to_array(values: NDArray[Any]) -> Array:
    """Make the same bytes as Flower's `Array(ndarray)`, with one copy of a model instead of three."""
    values = np.asarray(values, order="C")
    if values.dtype.hasobject:
        raise MessageError(f"arrays of {values.dtype} are not sent: they would need pickle")
    header = BytesIO()
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(values))
    return Array(str(values.dtype), values.shape, "numpy.ndarray", b"".join([header.getvalue(), values.tobytes()]))


def from_array(array: Array) -> NDArray[Any]:
    """A read-only view of the received bytes: a header that promises more allocates nothing."""
    stream = BytesIO(array.data)
    try:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("not version 1.0")
        shape, fortran, dtype = npy.read_array_header_1_0(stream)
        if fortran or dtype.hasobject:
            raise ValueError(f"of type {dtype} in Fortran order or with objects")
        return np.frombuffer(array.data, dtype, offset=stream.tell()).reshape(shape)
    except Exception as error:  # numpy's header parser fails in many ways on hostile bytes
        raise MessageError(f"an array is not what its header says: {error}") from error


class Serializer:
    """Serializes orders. Arrays that go to many clients are serialized once, so they are hashed and sent once."""

    def __init__(self) -> None:
        self._records: dict[int, tuple[Arrays, ArrayRecord]] = {}

    def serialize(self, item: Any) -> RecordDict:
        scalars: dict[str, Any] = {"version": VERSION, "kind": type(item).__name__}
        records: dict[str, ArrayRecord | ConfigRecord] = {}
        for field in FIELDS[type(item)]:
            value = getattr(item, field.name)
            if not field.arrays:
                scalars[field.name] = value
            elif value or field.required:
                records[field.name] = self._arrays(value)
        return RecordDict({"fedaux": ConfigRecord(scalars), **records})

    def _arrays(self, arrays: Arrays) -> ArrayRecord:
        cached = self._records.get(id(arrays))
        if cached is None or cached[0] is not arrays:
            cached = arrays, ArrayRecord({name: to_array(array) for name, array in arrays.items()})
            self._records[id(arrays)] = cached
        return cached[1]


def serialize(item: Order | Hello | HelloOrder | Answer) -> RecordDict:
    return Serializer().serialize(item)


def reply_group(limit: int) -> str:
    """The group id of an order: the bytes that its reply may have, for the SuperLink to enforce."""
    return f"at-most-{limit}-bytes"


def reply_bytes(group_id: str) -> int:
    """The bytes that a reply may have, from the group id of its order."""
    found = REPLY_GROUP.fullmatch(group_id)
    return int(found[1]) if found else MAX_REPLY_BYTES


def make_reply(message: Message, item: Hello | Answer) -> Message:
    return Message(serialize(item), reply_to=message)


def deserialize(kind: type[T], content: RecordDict) -> T:
    """The message, or an error that says what is wrong with it: an order's fields are all checked here."""
    # content[...] and not content.array_records: the latter puts the message into a reference cycle
    record = content.get("fedaux")
    if not isinstance(record, ConfigRecord):
        raise MessageError("the message has no fedaux record; is the other side running fedaux?")
    scalars = dict(record)
    version = scalars.get("version")
    if kind not in ANY_VERSION and (type(version) is not int or version != VERSION):  # True is 1, and no version
        # a migration of older messages would go here
        raise MessageError(f"the message has version {version!r}, this side speaks {VERSION}; upgrade the older one")
    if scalars.get("kind") != kind.__name__:
        raise MessageError(f"a {scalars.get('kind')!r} came where a {kind.__name__} was expected")
    values: dict[str, Any] = {}
    for field in FIELDS[kind]:
        name, value = field.name, (content if field.arrays else scalars).get(field.name, field.default)
        if isinstance(value, ArrayRecord):
            values[name] = {key: from_array(array) for key, array in value.items()}
        elif type(value) is field.type:
            values[name] = value
        elif not field.arrays or field.required or value is not None:
            raise MessageError(f"{kind.__name__}.{name} should be {field.type.__name__}, it is {value!r}")
    item = kind(**values)
    if kind in ORDER_FIELDS:
        check_order(item)  # type: ignore[arg-type]
    return item
