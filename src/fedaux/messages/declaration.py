"""How a message is declared: once, with everything that any part of the system must
know of each field.

Serialization, the checks of orders and replies, the sizes of replies, the identity of
an order, what an owner approves, what the sites of a secure sum agree on, and the
wording of the privacy statement are all derived from these marks. A field without its
marks is an error when the package is imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, dataclass_transform, get_type_hints

from fedaux.core.arrays import Arrays
from fedaux.messages.types import Type

MARKS = "fedaux"  # the key of a field's marks in its metadata
M = TypeVar("M")
# for an order's field a function of the order; for a reply's, of its order
TypeOf = Type | Callable[[Any], Type]


class Part(Enum):
    """Whom a field of an order concerns, and whether it decides what leaves a site."""

    # decides what leaves; an owner's approval binds it
    RUN = "the same for all sites throughout the run"
    ROUND = "the same for all sites of a round"  # decides what leaves
    SITE = "a site's own, and decides what it answers"
    # follows from other fields, or serves the transport
    CARRIER = "a site's own, and decides nothing"

    @property
    def is_shared(self) -> bool:
        """Whether the sites of a secure sum must have been asked with the same
        value.
        """
        return self in (Part.RUN, Part.ROUND)


class Protection(Enum):
    """How what a reply says is protected.

    Public is what follows from orders, settings and the account of earlier orders: no
    record influences it.

    Hooks of a method see models and never a record (`methods.hooks`): what they send is
    post-processing, covered where the model is. So are a model's logits on public data,
    weighted with what the server makes of the client's release, in a secure sum a site
    weights them by its own class counts, and so methods that distil train without noise
    there.
    """

    PUBLIC = "public"
    COVERED = "private, covered"
    SUMMED = "private, seen in sums over sites"
    UNPROTECTED = "private, NOT covered"


@dataclass(frozen=True)
class Disclosure:
    """What a field of a reply tells, in the words of the statement, and how that is
    protected.
    """

    what: str
    plain: Protection
    private: Protection  # with `privacy.private_training`

    @classmethod
    def always(cls, what: str, protection: Protection) -> Disclosure:
        return cls(what, protection, protection)


@dataclass(frozen=True)
class Asked:
    """The marks of an order's field."""

    type: TypeOf
    part: Part


@dataclass(frozen=True)
class Answered:
    """The marks of a reply's field."""

    type: TypeOf
    disclosure: Disclosure


def asked(
    type: TypeOf,
    part: Part,
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
) -> Any:
    """Declare a field of an order."""
    return _field(Asked(type, part), default, default_factory)


def answered(
    type: TypeOf,
    disclosure: Disclosure,
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
) -> Any:
    """Declare a field of a reply."""
    return _field(Answered(type, disclosure), default, default_factory)


def _field(marks: Asked | Answered, default: Any, default_factory: Any) -> Any:
    return dataclasses.field(
        default=default, default_factory=default_factory, metadata={MARKS: marks}
    )


@dataclass(frozen=True)
class Field:
    """A field of a message with its marks."""

    name: str
    kind: type  # of its value; `dict` for named arrays
    marks: Asked | Answered
    default: Any  # None if the field must be sent

    @property
    def has_arrays(self) -> bool:
        return self.kind is dict

    @property
    def may_be_left_out(self) -> bool:
        """Whether empty arrays are not sent: every record of a message is a request of
        its own.
        """
        return self.has_arrays and self.default is not None

    @property
    def is_fixed_for_run(self) -> bool:
        """Whether this is an order's field that has the same value throughout a run."""
        return isinstance(self.marks, Asked) and self.marks.part is Part.RUN

    def type_for(self, order: Any) -> Type:
        """Return the type that the field must have, given the order that it belongs to
        or answers.
        """
        return self.marks.type(order) if callable(self.marks.type) else self.marks.type


ORDERS: dict[type, str] = {}  # orders, and what Flower calls a message with one
REPLIES: list[type] = []
# evaluating annotations takes longer than reading a small message
_FIELDS: dict[type, tuple[Field, ...]] = {}


def fields_of(kind: type) -> tuple[Field, ...]:
    """Return the fields of a message, in their order."""
    return _FIELDS[kind]


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(asked,))
def order(flower_type: str) -> Callable[[type[M]], type[M]]:
    """Declare a class as an order, sent as Flower messages of this type."""

    def declare(cls: type[M]) -> type[M]:
        declared = _declare(cls, Asked)
        ORDERS[declared] = flower_type
        return declared

    return declare


@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(answered,)
)
def reply(cls: type[M]) -> type[M]:
    """Declare a class as a reply."""
    declared = _declare(cls, Answered)
    REPLIES.append(declared)
    return declared


def _declare(cls: type[M], marks: type) -> type[M]:
    hints = get_type_hints(cls)
    for name, kind in hints.items():
        marked = vars(cls).get(name)
        if kind == Arrays and isinstance(marked, dataclasses.Field):
            marked.repr = False  # a model has no place in a log
    # messages with arrays are compared by identity, since arrays have no truth value
    declared = dataclass(frozen=True, eq=False)(cls)
    fields = []
    for field in dataclasses.fields(declared):  # type: ignore[arg-type]
        if not isinstance(field.metadata.get(MARKS), marks):
            raise TypeError(
                f"Cannot declare {cls.__name__}: its field {field.name} has no marks. "
                f"Declare it with {marks.__name__.lower()}(type, …), which says what "
                "it may hold and what it tells."
            )
        kind = dict if hints[field.name] == Arrays else hints[field.name]
        default = field.default
        if callable(field.default_factory):
            default = field.default_factory()
        if default is dataclasses.MISSING:
            default = None
        fields.append(Field(field.name, kind, field.metadata[MARKS], default))
    _FIELDS[declared] = tuple(fields)
    return declared
