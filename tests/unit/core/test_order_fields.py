"""Every field of every order has a row in the table, and what is not what its row says is refused."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from fedaux.core.messages import HelloOrder, OrderError, PrepareOrder, SumsOrder, Teaching, TrainOrder
from fedaux.core.order_fields import FIELDS, MAX_RANDOM_FEATURES, ArrayType, Number, Text, check_order
from fedaux.flower.serialization import FIELDS as SERIALIZED
from fedaux.flower.serialization import MESSAGE_TYPES
from helpers.samples import prepare_order, sums_order, train_order

ORDERS = [HelloOrder(), prepare_order(), sums_order(), train_order()]


def test_every_field_of_every_order_has_a_row() -> None:
    """A field that is added to an order without one fails here."""
    assert set(FIELDS) == set(MESSAGE_TYPES)
    assert {kind: {field.name for field in fields(kind)} for kind in FIELDS} == {
        kind: set(rows) for kind, rows in FIELDS.items()
    }


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_honest_order_passes(order: Any) -> None:
    check_order(order)


@pytest.mark.parametrize("order", ORDERS[1:], ids=lambda order: type(order).__name__)
def test_no_field_takes_what_another_kind_holds(order: Any) -> None:
    for field in SERIALIZED[type(order)]:
        wrong: Any = 7.5 if field.arrays or field.type is str else "seven"
        with pytest.raises(OrderError, match=rf"{type(order).__name__}\.{field.name} "):
            check_order(replace(order, **{field.name: wrong}))


def public(**changes: Any) -> PrepareOrder:
    order = prepare_order()
    return replace(order, public={**order.public, **changes})


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (public(basis=np.zeros((3, 2), np.int64)), r"public must be 'basis': an array of float32; it is int64\(3, 2\)"),
        (public(basis=np.zeros((3, 2), ">f4")), "it is >f4"),
        (public(basis=np.zeros((4, 2), np.float32)), r"of shape \(H, k\) with H = 3"),
        (public(basis=np.zeros((3, 0), np.float32)), r"of shape \(H, k\)"),
        (public(basis=np.zeros(3, np.float32)), r"of shape \(H, k\)"),
        (public(mean=np.full(3, np.nan, np.float32)), "finite numbers"),
        (public(mean=np.full(3, -np.inf, np.float32)), "finite numbers"),
        (public(more=np.zeros(3, np.float32)), "the arrays mean, basis, not 'mean', 'basis', 'more'"),
        (prepare_order(public={"mean": np.zeros(3, np.float32)}), "the arrays mean, basis, not 'mean'"),
        (prepare_order(public={}), "must be arrays mean, basis"),
        (prepare_order(classes=0), "an integer from 1 to"),
        (prepare_order(classes=True), "an integer from 1 to"),
        (prepare_order(client="x" * 257), "text of at most 256 characters"),
        (train_order(lr=float("nan")), "a number from 1e-30 to"),
        (train_order(lr=1), "a number from 1e-30 to"),
        (train_order(momentum=1.5), "a number from 0 to 1"),
        (train_order(freeze_batch_norm=1), "true or false"),
        (train_order(weights={}), "must be arrays parameters, buffers, counters"),
        (train_order(weights={"parameters": np.zeros(6)}), "float32 or float16; it is float64"),
        (train_order(teaching="[1]"), "teaching must be a JSON object of at most"),
        (
            train_order(teaching='{"distill": "d", "examples": 3, "more": 1}'),
            r"teaching must be a JSON object with distill \(str\), examples \(int\)",
        ),
        (sums_order(sends="everything"), "one of class-sums, moments"),
        (sums_order(standardisation={"mean": np.zeros(2, np.float32)}), "the arrays mean, deviation, not 'mean'"),
        (
            sums_order(standardisation={"mean": np.zeros(2, np.float32), "deviation": np.zeros(2, np.float32)}),
            "finite numbers from 1.17549e-38",
        ),
    ],
)
def test_what_is_wrong_is_named(order: PrepareOrder | SumsOrder | TrainOrder, message: str) -> None:
    with pytest.raises(OrderError, match=message):
        check_order(order)


def test_what_a_scorer_publishes_is_known_by_its_name() -> None:
    """The logistic scorer's arrays are not those of an embedding; a scorer of one's own may have any names."""
    mean, matrix = np.zeros(3, np.float32), np.zeros((5, 3), np.float32)
    arrays = {"mean": mean, "radius": np.ones(1, np.float32), "negatives": matrix}
    check_order(prepare_order(scorer="logistic", public=arrays))
    check_order(prepare_order(scorer="mine:scorer", public={"anything": np.arange(3)}))
    with pytest.raises(OrderError, match="mean, basis"):
        check_order(prepare_order(public=arrays))
    with pytest.raises(OrderError, match="radius"):
        check_order(prepare_order(scorer="logistic", public={**arrays, "radius": np.zeros(1, np.float32)}))
    taught = Teaching("d", 3, "mean-embedding").to_json()
    check_order(train_order(teaching=taught, public=prepare_order().public))
    with pytest.raises(OrderError, match="mean, basis"):
        check_order(train_order(teaching=taught, public=arrays))


@pytest.mark.parametrize("count", [MAX_RANDOM_FEATURES + 1, 10**12, -1])
def test_more_random_features_than_a_site_has_room_for_are_refused(count: int) -> None:
    for order in (sums_order(random_features=count), train_order(random_features=count)):
        with pytest.raises(OrderError, match="random_features must be an integer from 0 to 100000"):
            check_order(order)


def test_infinities_pass_where_a_network_may_hold_a_mask_and_nan_nowhere() -> None:
    masked = {"parameters": np.zeros(2, np.float32), "buffers": np.array([0, -np.inf], np.float32)}
    check_order(prepare_order(extractor=masked))
    with pytest.raises(OrderError, match="'buffers'"):
        check_order(prepare_order(extractor={**masked, "buffers": np.array([np.nan, 0], np.float32)}))


def test_rules_are_told_apart_by_their_edges() -> None:
    assert Number(0, 3).problem(3) == Number(0, 3).problem(0) == ""
    assert Number(0, 3).problem(4)
    assert Number(0, 3).problem(-1)
    assert Number(0, 3).problem(np.int64(2))
    assert Text(3).problem("abc") == ""
    assert Text(3).problem("abcd")
    tiny, sizes = ArrayType(("float32",), ("a", "a")), dict[str, int]()
    assert tiny.problem(np.zeros((2, 2), np.float32), sizes) == ""
    assert sizes == {"a": 2}
    assert tiny.problem(np.zeros((2, 3), np.float32), {})
