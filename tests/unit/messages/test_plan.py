"""A plan covers what is as it says for the whole run, and nothing else."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedaux.core.failures import OrderError
from fedaux.messages import Part, RunPlan, fields_of, plan_of
from fedaux.messages.plan import KIND_OF_ORDER, SPARE_ROUNDS, Ask
from helpers.samples import (
    plan,
    plan_order,
    prepare_order,
    sums_order,
    terms,
    train_order,
    weights,
)

ORDERS = [prepare_order(), sums_order(), train_order()]
FIELDS = [(order, field) for order in ORDERS for field in fields_of(type(order))]


def named(pair: Any) -> str:
    return getattr(pair, "name", type(pair).__name__)


def other(value: Any) -> Any:
    if isinstance(value, dict):
        return {"another": np.ones(3, np.float32)}
    if isinstance(value, bool):
        return not value
    return value + ("x" if isinstance(value, str) else 1)


@pytest.mark.parametrize(("order", "field"), FIELDS, ids=named)
def test_an_order_that_differs_in_what_is_fixed_for_the_run_is_not_covered(
    order: Any, field: Any
) -> None:
    ask = Ask.of(order, 1)
    assert ask.covers(order)
    changed = replace(order, **{field.name: other(getattr(order, field.name))})
    assert ask.covers(changed) == (field.marks.part is not Part.RUN)
    told = RunPlan("cafe", "fedavg", 3, False, (ask,))
    assert RunPlan.from_json(told.to_json()).asks[0].covers(changed) == (
        field.marks.part is not Part.RUN
    )


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_no_kind_of_order_is_covered_by_another(order: Any) -> None:
    asks = tuple(Ask.of(one, 1) for one in ORDERS)
    whole = RunPlan("cafe", "fedavg", 3, False, asks)
    assert whole.ask_for(order) == Ask.of(order, 1)
    others = tuple(ask for ask in asks if ask.kind != KIND_OF_ORDER[type(order)])
    assert RunPlan("cafe", "fedavg", 3, False, others).ask_for(order) is None
    renamed = tuple(replace(ask, facts=Ask.of(order, 1).facts) for ask in others)
    assert RunPlan("cafe", "fedavg", 3, False, renamed).ask_for(order) is None


def test_a_plan_covers_a_secure_sum_and_its_later_attempts() -> None:
    ask = Ask.of(train_order(), 1)
    for attempt in range(3):
        assert ask.covers(train_order(sum=terms(attempt=attempt).to_json()))


def test_arrays_are_in_a_plan_by_their_hash() -> None:
    ask = Ask.of(sums_order(), 1)
    (name,) = [
        name
        for name, value in ask.facts.items()
        if isinstance(value, str) and len(value) == 64
    ]
    assert name == "standardisation"
    assert not ask.covers(sums_order(standardisation={}))
    moved = {"mean": np.full(2, 1e-30, np.float32), "deviation": np.ones(2, np.float32)}
    assert not ask.covers(sums_order(standardisation=moved))


def test_there_are_as_many_orders_as_rounds_and_a_few_to_spare_and_one_of_everything_else() -> (
    None
):
    found = plan_of("cafe", "fedavg", 7, False, ORDERS)
    assert {ask.kind: ask.at_most for ask in found.asks} == {
        "release": 1,
        "sums": 1,
        "train": 7 + SPARE_ROUNDS,
    }


def test_orders_that_are_equal_for_the_run_are_listed_once() -> None:
    """One for each client, each with a seed of its own; and one for each network."""
    same = [
        train_order(name, seed=seed, weights=weights(seed))
        for seed, name in enumerate("abc")
    ]
    assert plan_of("cafe", "fedavg", 3, False, same) == plan_of(
        "cafe", "fedavg", 3, False, same[:1]
    )
    two = plan_of(
        "cafe", "fedavg", 3, False, [*same, train_order(prototype='["cnn", {}]')]
    )
    assert [ask.facts["prototype"] for ask in two.asks] == [
        '["mlp", {}]',
        '["cnn", {}]',
    ]


def test_a_plan_comes_back_from_json_with_the_same_hash() -> None:
    told = plan()
    again = RunPlan.from_json(told.to_json())
    assert again == told
    assert (
        again.hash == told.hash == hashlib.sha256(told.to_json().encode()).hexdigest()
    )
    assert plan_order().plan_hash == told.hash
    shuffled = json.dumps(dict(reversed(json.loads(told.to_json()).items())))
    assert RunPlan.from_json(shuffled).hash == told.hash


@pytest.mark.parametrize(
    "change",
    [
        {"run": "beef"},
        {"method": "scaffold"},
        {"rounds": 4},
        {"secure": True},
        {"schema": "0123456789abcdef"},
        {"asks": plan().asks[:1]},
        {"asks": tuple(reversed(plan().asks))},
        {"asks": (replace(plan().asks[0], at_most=2), plan().asks[1])},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_a_plan_is_in_its_hash(change: dict[str, Any]) -> None:
    assert replace(plan(), **change).hash != plan().hash


def test_the_schema_of_a_table_is_in_its_plan() -> None:
    assert "schema" not in json.loads(plan().to_json())
    told = replace(plan(), schema="0123456789abcdef")
    assert RunPlan.from_json(told.to_json()) == told
    with pytest.raises(OrderError, match="its schema must be"):
        replace(plan(), schema="x" * 65).check()


WHOLE = json.loads(plan().to_json())


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        "7",
        *(
            json.dumps(
                {name: value for name, value in WHOLE.items() if name != left_out}
            )
            for left_out in WHOLE
        ),
        json.dumps({**WHOLE, "asks": 7}),
        json.dumps({**WHOLE, "asks": [7]}),
        json.dumps({**WHOLE, "asks": [{}]}),
        json.dumps(
            {**WHOLE, "asks": [{"kind": "train", "at_most": "many", "facts": {}}]}
        ),
        json.dumps({**WHOLE, "asks": [{"kind": "train", "at_most": 1, "facts": 7}]}),
        json.dumps({**WHOLE, "rounds": "many"}),
        json.dumps({**WHOLE, "rounds": None}),
        json.dumps({**WHOLE, "rounds": float("inf")}),
    ],
)
def test_what_is_no_plan_is_said_so(content: str) -> None:
    with pytest.raises(OrderError, match="Cannot read the plan of the run"):
        RunPlan.from_json(content)
