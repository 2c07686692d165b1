"""The checks that follow from the declarations: of an order at the site, of a reply and
its size at the server.

Every refusal of an order depends on the order alone, so it reveals nothing of a record.
"""

from __future__ import annotations

from typing import Any

from fedaux.core.failures import OrderError
from fedaux.messages.declaration import Field, fields_of
from fedaux.messages.orders import EveryOrder, Order
from fedaux.messages.replies import Answer, answer_type
from fedaux.messages.types import ArrayGroup

# bytes of a reply next to its arrays: names, headers, scalars, the account
OVERHEAD = 2**18
# of each of many small arrays, which are two objects of Flower's
BYTES_OF_AN_ARRAY = 2**15


class InvalidReplyError(ValueError):
    """A reply that must not be used, with the reason."""


def check_order(order: EveryOrder) -> None:
    """Raise an `OrderError` that names the first field which is not what its
    declaration says.

    Fields are read in their order: one whose type depends on another field stands below
    it.
    """
    for field in fields_of(type(order)):
        problem = _problem(field, order, getattr(order, field.name))
        if problem:
            raise OrderError(
                f"Cannot read the order: {type(order).__name__}.{field.name} must be "
                f"{problem}. Install the same version of fedaux at the server and the "
                "sites."
            )


def check_reply(order: Order, reply: Answer) -> None:
    """Raise an `InvalidReplyError` unless the reply has the form of an answer to this
    order.
    """
    expected = answer_type(order)
    if type(reply) is not expected:
        raise InvalidReplyError(
            f"sends a {type(reply).__name__} where a {expected.__name__} answers"
        )
    for field in fields_of(expected):
        problem = _problem(field, order, getattr(reply, field.name))
        if problem:
            raise InvalidReplyError(f"its {field.name} should be {problem}")


def _problem(field: Field, order: EveryOrder, value: Any) -> str:
    """Say what a field should be, and what it is if that is a number, or "" if nothing is
    wrong.
    """
    problem = field.type_for(order).problem(value)
    if problem and isinstance(value, int | float):
        return f"{problem}, but it is {value!r}"
    return problem


def largest_reply(order: Order) -> int:
    """Return the bytes that an honest reply to an order has at most, for the server's
    link to enforce.
    """
    size = OVERHEAD
    for field in fields_of(answer_type(order)):
        kind = field.type_for(order)
        if not isinstance(kind, ArrayGroup):
            continue
        arrays = kind.bytes_at_most()
        size += arrays + arrays // 16 + kind.count_at_most() * BYTES_OF_AN_ARRAY
    return size
