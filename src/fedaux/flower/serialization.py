"""Messages to Flower records and back: scalars in a ConfigRecord, arrays in ArrayRecords; versioned, no pickle."""

from __future__ import annotations

import dataclasses
from io import BytesIO
from typing import Any, TypeVar, get_type_hints

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedaux.core.messages import Arrays, Hello, HelloOrder, Order, PrepareOrder, Release, TrainOrder, Update

VERSION = 6
MESSAGE_TYPES: dict[type, str] = {HelloOrder: "query.hello", PrepareOrder: "query.prepare", TrainOrder: "train"}

T = TypeVar("T", bound=HelloOrder | Hello | PrepareOrder | TrainOrder | Release | Update)


class MessageError(ValueError):
    """A message that cannot be read."""


def to_array(values: NDArray[Any]) -> Array:
    """The same bytes as Flower's `Array(ndarray)`, with one copy of a model instead of three."""
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
        for field in dataclasses.fields(item):
            value = getattr(item, field.name)
            if isinstance(value, dict):
                records[field.name] = self._arrays(value)
            else:
                scalars[field.name] = value
        return RecordDict({"fedaux": ConfigRecord(scalars), **records})

    def _arrays(self, arrays: Arrays) -> ArrayRecord:
        cached = self._records.get(id(arrays))
        if cached is None or cached[0] is not arrays:
            cached = arrays, ArrayRecord({name: to_array(array) for name, array in arrays.items()})
            self._records[id(arrays)] = cached
        return cached[1]


def serialize(item: Order | Hello | HelloOrder | Release | Update) -> RecordDict:
    return Serializer().serialize(item)


def deserialize(kind: type[T], content: RecordDict) -> T:
    """The message, or a `MessageError` that says what is wrong with it."""
    # content[...] and not content.array_records: the latter puts the message into a reference cycle
    scalars = content.get("fedaux")
    if not isinstance(scalars, ConfigRecord):
        raise MessageError("the message has no fedaux record; is the other side running fedaux?")
    if scalars.get("version") != VERSION:
        raise MessageError(
            f"the message has version {scalars.get('version')!r}, this side has {VERSION}; upgrade the older one"
        )
    if scalars.get("kind") != kind.__name__:
        raise MessageError(f"a {scalars.get('kind')!r} came where a {kind.__name__} was expected")
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, hint in hints.items():
        if hint == Arrays:
            arrays = content.get(name)
            if not isinstance(arrays, ArrayRecord):
                raise MessageError(f"{kind.__name__}.{name} is missing")
            values[name] = {key: from_array(array) for key, array in arrays.items()}
        elif type(scalars.get(name)) is hint:
            values[name] = scalars[name]
        else:
            raise MessageError(f"{kind.__name__}.{name} should be {hint.__name__}, it is {scalars.get(name)!r}")
    return kind(**values)
