"""The identity of an order: all that decides what leaves, each field by its part, and
nothing else.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaux.core.arrays import Arrays, fingerprint_arrays
from fedaux.messages import HelloOrder, Part, fields_of, identity, question
from fedaux.messages.identity import run_facts
from helpers.samples import every_order, prepare_order, sums_order, terms, train_order

ORDERS = [order for order in every_order() if not isinstance(order, HelloOrder)]
FIELDS = [(order, field) for order in ORDERS for field in fields_of(type(order))]


def named(pair: Any) -> str:
    return getattr(pair, "name", type(pair).__name__)


def others(value: Any) -> list[Any]:
    """Values that differ from one as little as its type allows."""
    if isinstance(value, dict):
        return other_arrays(value)
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [float(np.nextafter(value, 2.0))]
    return [f"{value} ", f"{value}\0"]


def other_arrays(arrays: Arrays) -> list[Arrays]:
    """Another array, name, bit, type or shape."""
    found: list[Arrays] = [{**arrays, "another": np.zeros(1, np.float32)}]
    if not arrays:
        return found
    name, array = next(iter(arrays.items()))
    rest = {key: kept for key, kept in arrays.items() if key != name}
    bit = np.array(array, order="C")
    bit.view(np.uint8).flat[0] ^= 1
    wider = (
        "float64"
        if array.dtype.kind == "f"
        else "int32"
        if array.dtype.itemsize == 8
        else "int16"
    )
    found += [rest, {**rest, name: bit}, {**rest, f"{name}x": array}]
    found += [
        {**rest, name: array.astype(wider)},
        {**rest, name: np.array(array[None])},
    ]
    return found


@pytest.mark.parametrize(("order", "field"), FIELDS, ids=named)
def test_what_a_field_changes_follows_from_its_part(order: Any, field: Any) -> None:
    """RUN and ROUND: another order for all sites. SITE: another question to this one.
    CARRIER: the same question.
    """
    part = field.marks.part
    for value in others(getattr(order, field.name)):
        changed = replace(order, **{field.name: value})
        assert (identity(changed) != identity(order)) == (
            part in (Part.RUN, Part.ROUND)
        )
        assert (question(changed) != question(order)) == (part is not Part.CARRIER)


def test_all_changes_of_all_orders_are_told_apart() -> None:
    """No change of one field is mistaken for that of another one."""
    questions = [question(order) for order in ORDERS]
    for order, field in FIELDS:
        if field.marks.part is not Part.CARRIER:
            questions += [
                question(replace(order, **{field.name: one}))
                for one in others(getattr(order, field.name))
            ]
    assert len(set(questions)) == len(questions) > 90


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_an_identity_has_256_bits_and_is_the_same_for_a_copy(order: Any) -> None:
    copies = {
        field.name: {
            name: np.array(array)
            for name, array in reversed(getattr(order, field.name).items())
        }
        for field in fields_of(type(order))
        if field.has_arrays
    }
    for found in (identity(order), question(order)):
        assert len(bytes.fromhex(found)) == 32
    assert identity(replace(order, **copies)) == identity(order)
    assert question(replace(order, **copies)) == question(order)
    assert identity(order) != question(order)


def test_arrays_that_trade_places_are_another_order() -> None:
    """The same bytes under another field, or cut at another place."""
    fit = {"x": np.arange(4, dtype=np.float32)}
    orders = [
        train_order(fit=fit),
        train_order(broadcast=fit),
        train_order(public=fit),
        train_order(fit={"x": fit["x"][:2], "y": fit["x"][2:]}),
        train_order(fit={"x": fit["x"].reshape(2, 2)}),
        train_order(fit={"x": fit["x"].reshape(4, 1)}),
    ]
    assert len({identity(order) for order in orders}) == len(orders)


def test_the_hash_of_an_order_is_that_of_its_parts() -> None:
    """Written out naively for an order with one field of arrays that is shared."""
    order = sums_order(sum=terms().to_json())
    scalars = [
        ("classes", 2),
        ("h0", "f00d"),
        ("prototype", '["mlp", {}]'),
        ("random_features", 0),
        ("sends", "moments"),
        ("width", 2),
    ]
    expected = fingerprint_arrays(
        order.standardisation, facts=[["SumsOrder", 2], scalars, ["standardisation"]]
    )
    assert identity(order) == expected
    assert question(order) == fingerprint_arrays(
        facts=[expected, [("client", "a")], []]
    )


def test_facts_of_a_run_are_what_is_fixed_for_it() -> None:
    order = prepare_order()
    assert run_facts(order) == {
        "prototype": '["mlp", {}]',
        "scorer": "class-embedding",
        "classes": 10,
        "size": 2,
        "h0": "f00d",
        "public": fingerprint_arrays(order.public),
    }
    assert "standardisation" not in run_facts(sums_order(standardisation={}))
