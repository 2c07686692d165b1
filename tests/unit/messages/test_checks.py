"""What is not what its declaration says is refused: orders at the site, replies and
their sizes at the server.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from fedaux.core.failures import OrderError
from fedaux.flower.serialization import serialize
from fedaux.messages import (
    ORDERS,
    Answer,
    InvalidReplyError,
    PrepareOrder,
    SumsOrder,
    Teaching,
    TrainOrder,
    check_order,
    check_reply,
    fields_of,
    largest_reply,
)
from fedaux.messages.orders import MAX_RANDOM_FEATURES
from helpers.samples import (
    consent,
    every_order,
    masked,
    plan_order,
    prepare_order,
    release,
    sum_order,
    sum_reply,
    sums,
    sums_order,
    terms,
    train_order,
    update,
)

HONEST = every_order()


def test_every_order_has_a_sample_and_every_field_a_declaration() -> None:
    """A new order, or a new field of one, is tested below or fails here."""
    assert {type(order) for order in HONEST} == set(ORDERS)
    for kind in ORDERS:
        assert [field.name for field in fields(kind)] == [
            field.name for field in fields_of(kind)
        ]


@pytest.mark.parametrize("order", HONEST, ids=lambda order: type(order).__name__)
def test_an_honest_order_passes(order: Any) -> None:
    check_order(order)


@pytest.mark.parametrize("order", HONEST[1:], ids=lambda order: type(order).__name__)
def test_no_field_takes_what_another_kind_holds(order: Any) -> None:
    for field in fields_of(type(order)):
        wrong: Any = 7.5 if field.has_arrays or field.kind is str else "seven"
        with pytest.raises(OrderError, match=rf"{type(order).__name__}\.{field.name} "):
            check_order(replace(order, **{field.name: wrong}))


@pytest.mark.parametrize("order", HONEST[1:], ids=lambda order: type(order).__name__)
def test_no_text_of_an_order_rewrites_a_terminal(order: Any) -> None:
    for field in fields_of(type(order)):
        value = getattr(order, field.name)
        if field.kind is str:
            with pytest.raises(
                OrderError, match=rf"{type(order).__name__}\.{field.name} "
            ):
                check_order(replace(order, **{field.name: f"{value}\x1b[2K"}))
        if field.has_arrays and value:
            with pytest.raises(
                OrderError, match=rf"{type(order).__name__}\.{field.name} "
            ):
                check_order(
                    replace(
                        order,
                        **{field.name: {**value, "\u202e": next(iter(value.values()))}},
                    )
                )


def public(**changes: Any) -> PrepareOrder:
    order = prepare_order()
    return replace(order, public={**order.public, **changes})


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (
            public(basis=np.zeros((3, 2), np.int64)),
            r"public must be 'basis': an array of float32, but it is int64\(3, 2\)",
        ),
        (public(basis=np.zeros((3, 2), ">f4")), "it is >f4"),
        (public(basis=np.zeros((4, 2), np.float32)), r"of shape \(H, k\) with H = 3"),
        (public(basis=np.zeros((3, 0), np.float32)), r"of shape \(H, k\)"),
        (public(basis=np.zeros(3, np.float32)), r"of shape \(H, k\)"),
        (public(mean=np.full(3, np.nan, np.float32)), "finite numbers"),
        (public(mean=np.full(3, -np.inf, np.float32)), "finite numbers"),
        (
            public(more=np.zeros(3, np.float32)),
            "the arrays mean, basis, not 'mean', 'basis', 'more'",
        ),
        (
            prepare_order(public={"mean": np.zeros(3, np.float32)}),
            "the arrays mean, basis, not 'mean'",
        ),
        (prepare_order(public={}), "must be arrays mean, basis"),
        (prepare_order(classes=0), "an integer from 1 to"),
        (prepare_order(classes=True), "an integer from 1 to"),
        (prepare_order(client="x" * 257), "text of at most 256 characters"),
        (train_order(lr=float("nan")), "a number from 1e-30 to"),
        (train_order(lr=1), "a number from 1e-30 to"),
        (train_order(momentum=1.5), "a number from 0 to 1"),
        (train_order(freeze_batch_norm=1), "true or false"),
        (train_order(max_grad_norm=-1.0), "a number from 0 to"),
        (train_order(weights={}), "must be arrays parameters, buffers, counters"),
        (
            train_order(weights={"parameters": np.zeros(6)}),
            "float32 or float16, but it is float64",
        ),
        (train_order(teaching="[1]"), "teaching must be a JSON object of at most"),
        (
            train_order(teaching='{"distill": "d", "examples": 3, "more": 1}'),
            r"teaching must be a JSON object with distill \(str\), examples \(int\)",
        ),
        (sums_order(sends="everything"), "one of class-sums, moments"),
        (
            sums_order(standardisation={"mean": np.zeros(2, np.float32)}),
            "the arrays mean, deviation, not 'mean'",
        ),
        (
            sums_order(
                standardisation={
                    "mean": np.zeros(2, np.float32),
                    "deviation": np.zeros(2, np.float32),
                }
            ),
            "finite numbers from 1.17549e-38",
        ),
    ],
)
def test_what_is_wrong_is_named(
    order: PrepareOrder | SumsOrder | TrainOrder, message: str
) -> None:
    with pytest.raises(OrderError, match=message):
        check_order(order)


def test_what_a_scorer_publishes_is_known_by_its_name() -> None:
    """The logistic scorer's arrays are not those of an embedding; a scorer of one's own
    may have any names.
    """
    mean, matrix = np.zeros(3, np.float32), np.zeros((5, 3), np.float32)
    arrays = {"mean": mean, "radius": np.ones(1, np.float32), "negatives": matrix}
    check_order(prepare_order(scorer="logistic", public=arrays))
    check_order(prepare_order(scorer="mine:scorer", public={"anything": np.arange(3)}))
    with pytest.raises(OrderError, match="mean, basis"):
        check_order(prepare_order(public=arrays))
    with pytest.raises(OrderError, match="radius"):
        check_order(
            prepare_order(
                scorer="logistic", public={**arrays, "radius": np.zeros(1, np.float32)}
            )
        )
    taught = Teaching("d", 3, "class-embedding").to_json()
    check_order(train_order(teaching=taught, public=prepare_order().public))
    with pytest.raises(OrderError, match="mean, basis"):
        check_order(train_order(teaching=taught, public=arrays))


@pytest.mark.parametrize("count", [MAX_RANDOM_FEATURES + 1, 10**12, -1])
def test_more_random_features_than_a_site_has_room_for_are_refused(count: int) -> None:
    for order in (
        sums_order(random_features=count),
        train_order(random_features=count),
    ):
        with pytest.raises(
            OrderError, match="random_features must be an integer from 0 to 100000"
        ):
            check_order(order)


def test_infinities_pass_where_a_network_may_hold_a_mask_and_nan_nowhere() -> None:
    masked = {
        "parameters": np.zeros(2, np.float32),
        "buffers": np.array([0, -np.inf], np.float32),
    }
    check_order(prepare_order(extractor=masked))
    with pytest.raises(OrderError, match="'buffers'"):
        check_order(
            prepare_order(
                extractor={**masked, "buffers": np.array([np.nan, 0], np.float32)}
            )
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sum": ""}, "SumOrder.sum must be a JSON object"),
        ({"sum": "{}"}, "SumOrder.sum must be a JSON object with run"),
        (
            {"sum": terms(sites="abc").to_json()},
            "SumOrder.sum must be a JSON object with run",
        ),
        (
            {"sum": terms(threshold=True).to_json()},
            "SumOrder.sum must be a JSON object with run",
        ),
        (
            {"sum": terms(sites=["a\x1b[2K", "b"]).to_json()},
            "a JSON object of printable text",
        ),
        ({"step": "keys"}, "one of shares, masked, survivors, unmask"),
        ({"arrays": {"b": np.zeros(2**15 + 1, np.uint8)}}, "at most 32768 bytes"),
        ({"arrays": {"b": np.zeros(2, np.int64)}}, "an array of uint8"),
        (
            {"arrays": {str(one): np.zeros(1, np.uint8) for one in range(7)}},
            "at most 6 arrays",
        ),
    ],
    ids=str,
)
def test_steps_of_a_secure_sum_are_bytes_of_its_sites(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(OrderError, match=message):
        check_order(sum_order(**changes))


@pytest.mark.parametrize("kind", [prepare_order, sums_order, train_order])
def test_terms_of_a_secure_sum_have_every_entry(kind: Any) -> None:
    check_order(kind(sum=terms().to_json()))
    for wrong in (
        "{}",
        '{"run": "x"}',
        terms(scale=1).to_json(),
        terms(length=2.0).to_json(),
    ):
        with pytest.raises(OrderError, match=r"\.sum must be a JSON object with run"):
            check_order(kind(sum=wrong))


PAIRS: list[tuple[Any, Answer]] = [
    (plan_order(), consent()),
    (prepare_order(), release()),
    (sums_order(), sums()),
    (train_order(), update()),
    (prepare_order(sum=terms().to_json()), sum_reply(step="keys")),
    (sums_order(sum=terms().to_json()), sum_reply(step="keys")),
    (train_order(sum=terms().to_json()), sum_reply(step="keys")),
    (sum_order(step="shares"), sum_reply(step="shares")),
    (sum_order(step="survivors"), sum_reply(step="survivors")),
    (sum_order(step="unmask"), sum_reply(step="unmask")),
    (sum_order(step="masked"), masked()),
]


def in_words(pair: Any) -> str:
    return f"{type(pair).__name__}{'-in-a-sum' if getattr(pair, 'sum', '') else ''}-{getattr(pair, 'step', '')}"


@pytest.mark.parametrize(("order", "reply"), PAIRS, ids=in_words)
def test_an_honest_reply_passes_and_no_other_kind_of_reply_does(
    order: Any, reply: Answer
) -> None:
    check_reply(order, reply)
    for _, other in PAIRS:
        if type(other) is not type(reply):
            with pytest.raises(
                InvalidReplyError, match=f"sends a {type(other).__name__} where a"
            ):
                check_reply(order, other)


@pytest.mark.parametrize(("order", "reply"), PAIRS, ids=in_words)
def test_a_reply_holds_nothing_that_another_kind_holds(
    order: Any, reply: Answer
) -> None:
    for field in fields_of(type(reply)):
        wrong: Any = 7.5 if field.has_arrays or field.kind is str else "seven"
        with pytest.raises(InvalidReplyError, match=f"its {field.name} should be "):
            check_reply(order, replace(reply, **{field.name: wrong}))


@pytest.mark.parametrize(("order", "reply"), PAIRS, ids=in_words)
def test_no_text_of_a_reply_rewrites_a_terminal(order: Any, reply: Answer) -> None:
    for field in fields_of(type(reply)):
        if field.kind is str:
            with pytest.raises(InvalidReplyError, match=f"its {field.name} should be "):
                check_reply(
                    order,
                    replace(
                        reply, **{field.name: f"{getattr(reply, field.name)}\x1b[2K"}
                    ),
                )


@pytest.mark.parametrize(("order", "reply"), PAIRS, ids=in_words)
def test_a_reply_of_another_client_or_step_or_round_is_none_to_this_order(
    order: Any, reply: Any
) -> None:
    with pytest.raises(InvalidReplyError, match="its client should be one of a"):
        check_reply(order, replace(reply, client="b"))
    for name, wrong in (("step", "unmasked"), ("round", 3)):
        if hasattr(reply, name):
            with pytest.raises(InvalidReplyError, match=f"its {name} should be"):
                check_reply(order, replace(reply, **{name: wrong}))


@pytest.mark.parametrize(("order", "reply"), PAIRS, ids=in_words)
def test_no_honest_reply_is_larger_than_its_order_allows(
    order: Any, reply: Any
) -> None:
    """Its arrays as they are sent, and everything beside them as it is written."""
    content = serialize(reply)
    arrays = sum(
        len(array.data)
        for record in content.array_records.values()
        for array in record.values()
    )
    assert arrays + len(repr(content.config_records)) < largest_reply(order)


def test_the_size_of_a_reply_grows_with_what_was_asked_for() -> None:
    few = largest_reply(prepare_order(size=10))
    many = largest_reply(prepare_order(size=10 + 10**6))
    assert 8 * 10**6 <= many - few <= 9 * 10**6
    assert (
        largest_reply(train_order(weights={"parameters": np.zeros(10**6, np.float32)}))
        < 2**26
    )
    assert largest_reply(plan_order()) < 2**20
