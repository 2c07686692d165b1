"""Each message is declared once, with marks for every field: one without them cannot
even be imported.
"""

import dataclasses
from typing import Any, get_args

import pytest

from fedaux.core.arrays import Arrays
from fedaux.messages import (
    ORDERS,
    Answer,
    DataOrder,
    Disclosure,
    EveryOrder,
    Hello,
    Part,
    Protection,
    fields_of,
)
from fedaux.messages.declaration import (
    REPLIES,
    Answered,
    Asked,
    answered,
    asked,
    order,
    reply,
)
from fedaux.messages.types import ANY_NAME, ArrayGroup, ArrayType, Number, Text
from helpers.samples import (
    consent,
    counts,
    every_order,
    hello,
    masked,
    prepare_order,
    release,
    sum_reply,
    sums,
    train_order,
    update,
)

TOLD = Disclosure.always("a name", Protection.PUBLIC)
ARRAYS = ArrayGroup({ANY_NAME: ArrayType(("float32",), None)})
MESSAGES = [
    *every_order()[1:],
    hello(),
    consent(),
    release(),
    sums(),
    update(),
    counts(),
    sum_reply(),
    masked(),
]


def bare() -> None:
    @order("query.bare")
    class Bare:
        client: str


def bare_with_a_default() -> None:
    @order("query.bare")
    class Bare:
        client: str = "a"


def bare_beside_others() -> None:
    @order("query.bare")
    class Bare:
        client: str = asked(Text(), Part.SITE)
        round: int = dataclasses.field(default=1)


def with_the_marks_of_a_reply() -> None:
    @order("query.bare")
    class Bare:
        client: str = answered(Text(), TOLD)


def bare_reply() -> None:
    @reply
    class Bare:
        client: str = answered(Text(), TOLD)
        loss: float = 0.0


def reply_with_the_marks_of_an_order() -> None:
    @reply
    class Bare:
        client: str = asked(Text(), Part.SITE)


@pytest.mark.parametrize(
    "declare",
    [
        bare,
        bare_with_a_default,
        bare_beside_others,
        with_the_marks_of_a_reply,
        bare_reply,
        reply_with_the_marks_of_an_order,
    ],
    ids=lambda function: function.__name__,
)
def test_a_field_without_its_marks_is_an_error_where_its_message_is_declared(
    declare: Any,
) -> None:
    orders = dict(ORDERS)
    replies = list(REPLIES)
    with pytest.raises(
        TypeError,
        match=r"Cannot declare Bare: its field (client|round|loss) has no marks",
    ):
        declare()
    assert (orders, replies) == (ORDERS, REPLIES)


def test_a_message_that_is_declared_has_its_fields_with_their_marks() -> None:
    @order("query.mine")
    class Mine:
        client: str = asked(Text(), Part.SITE)
        weights: Arrays = asked(ARRAYS, Part.RUN)
        round: int = asked(
            lambda order: Number(0, len(order.client)), Part.ROUND, default=2
        )
        more: Arrays = asked(ARRAYS, Part.CARRIER, default_factory=dict)

    assert ORDERS.pop(Mine) == "query.mine"
    facts = [
        (field.name, field.kind, field.default, field.may_be_left_out)
        for field in fields_of(Mine)
    ]
    assert facts == [
        ("client", str, None, False),
        ("weights", dict, None, False),
        ("round", int, 2, False),
        ("more", dict, {}, True),
    ]
    mine: Any = Mine("abc", weights={})  # type: ignore[call-arg]
    assert mine.round == 2
    assert fields_of(Mine)[2].type_for(mine) == Number(0, 3)


def test_every_message_is_declared() -> None:
    assert set(ORDERS) == set(get_args(EveryOrder))
    assert set(REPLIES) == {Hello, *get_args(Answer)}
    assert len(set(ORDERS.values())) == len(ORDERS)
    assert {type(message) for message in MESSAGES} == {*ORDERS, *REPLIES} - {
        type(every_order()[0])
    }


def test_every_field_has_the_marks_of_its_side() -> None:
    for kinds, marks in ((ORDERS, Asked), (REPLIES, Answered)):
        for kind in kinds:
            declared = fields_of(kind)
            assert [field.name for field in declared] == [
                field.name for field in dataclasses.fields(kind)
            ]
            assert all(type(field.marks) is marks for field in declared), kind.__name__


def test_only_what_cannot_decide_anything_is_marked_so() -> None:
    """Written down twice on purpose: a field that moves out of the identity must be
    moved here as well.
    """
    by_part: dict[Part, set[str]] = {part: set() for part in Part}
    for kind in get_args(DataOrder):
        for field in fields_of(kind):
            by_part[field.marks.part].add(field.name)
    assert by_part[Part.CARRIER] == {
        "known_entries",
        "known_signature",
        "extractor",
        "plan",
        "sum",
    }
    assert by_part[Part.SITE] == {"client", "seed", "last_round", "client_fit"}
    assert by_part[Part.ROUND] == {
        "round",
        "lr",
        "weights",
        "broadcast",
        "teaching",
        "public",
        "fit",
        "class_weights",
    }
    assert {part for part in Part if part.is_shared} == {Part.RUN, Part.ROUND}


def test_what_is_private_without_noise_is_marked_so() -> None:
    """Written down twice on purpose, as the statement goes by these marks."""
    found = {
        (kind.__name__, field.name): (
            field.marks.disclosure.plain.name,
            field.marks.disclosure.private.name,
        )
        for kind in REPLIES
        for field in fields_of(kind)
    }
    told = {name: how for name, how in found.items() if how != ("PUBLIC", "PUBLIC")}
    open_ = ("UNPROTECTED", "UNPROTECTED")
    assert told == {
        ("Release", "records"): open_,
        ("Release", "arrays"): ("COVERED", "COVERED"),
        ("Sums", "records"): open_,
        ("Sums", "arrays"): open_,
        ("Update", "records"): open_,
        ("Update", "loss"): ("UNPROTECTED", "PUBLIC"),
        ("Update", "seconds"): ("UNPROTECTED", "PUBLIC"),
        ("Update", "weights"): ("UNPROTECTED", "COVERED"),
        ("Update", "extra"): ("UNPROTECTED", "COVERED"),
        ("Update", "ensemble"): ("UNPROTECTED", "COVERED"),
        ("Counts", "arrays"): ("COVERED", "COVERED"),
        ("Masked", "arrays"): ("SUMMED", "SUMMED"),
    }


@pytest.mark.parametrize(
    "message", MESSAGES, ids=lambda message: type(message).__name__
)
def test_messages_are_frozen_and_their_repr_shows_no_array(message: Any) -> None:
    assert "array(" not in repr(message)
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.client = "somebody else"


def test_messages_are_compared_by_identity() -> None:
    """Arrays have no truth value, so that a comparison of fields would fail."""
    for make in (prepare_order, train_order, release, update):
        one = make()
        assert one == one
        assert one != make()
        assert len({one, make()}) == 2
