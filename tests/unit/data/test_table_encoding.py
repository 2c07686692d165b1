"""From a table's values to numbers: against the plain way, value by value."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.data.table_encoding import (
    column_names,
    encode,
    same_name,
    scale,
    to_number,
    to_numbers,
)
from fedaux.data.table_schema import Column, TableHeader, TableSchema

VALUES = st.sampled_from(
    ["", "NA", "?", "a", "b", "z", "0", "1", "1.0", "2,5", "2.5", "-7", "1e400", "nan"]
) | st.text(max_size=6)


def schema_of(**columns: Column) -> TableSchema:
    return TableSchema(TableHeader(confirmed=True), columns, {})


SCHEMA = schema_of(
    plain=Column(range=(0, 10)),
    ranked=Column(range=(0, 100), quantiles=(0, 1, 1, 1, 9, 100), missing=True),
    binned=Column(range=(0, 10), bins=(2, 5), missing=True),
    kind=Column("category", values=("a", "b", "1"), missing=True),
    sure=Column("category", values=("a",)),
    flag=Column("flag", values=("0", "1"), missing=True),
)


def plainly(column: Column, text: str) -> list[float]:
    """A value's numbers by the words of the module, without arrays."""
    missing = text in TableHeader().missing
    if column.kind == "category":
        name = same_name(text)
        slots = [*column.values, "another", "missing"]
        found = name if name in column.values else "missing" if missing else "another"
        coded = [float(slot == found) for slot in slots]
        return coded if column.missing else coded[:-1]
    if column.kind == "flag":
        name = same_name(text).casefold()
        known = name in column.values
        value = float(column.values.index(name)) if known else 0.5
        return [value, float(not known)] if column.missing else [value]
    number = math.nan if missing else to_number(text)
    gone = math.isnan(number)
    low, high = column.range
    number = min(max(low if gone else number, low), high)
    points = column.quantiles or column.range
    places = np.linspace(-1, 1, len(points))
    ties = sorted(set(points))
    means = [
        np.mean(
            [place for point, place in zip(points, places, strict=True) if point == tie]
        )
        for tie in ties
    ]
    numbers = [0.0 if gone else float(np.interp(number, ties, means))]
    if column.bins:
        bounds = [-math.inf, *column.bins, math.inf]
        numbers += [
            float(first <= number < last and not gone)
            for first, last in pairwise(bounds)
        ]
    return [*numbers, float(gone)] if column.missing else numbers


@given(st.lists(st.lists(VALUES, min_size=6, max_size=6), min_size=1, max_size=8))
def test_values_are_encoded_one_by_one(rows: list[list[str]]) -> None:
    rows = [[value.strip() for value in row] for row in rows]
    columns = [[row[place] for row in rows] for place in range(6)]
    encoded = encode(SCHEMA, columns)
    assert encoded.shape == (len(rows), len(column_names(SCHEMA)))
    for row, found in zip(rows, encoded, strict=True):
        described = zip(SCHEMA.columns.values(), row, strict=True)
        expected = [number for item in described for number in plainly(*item)]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        alone = encode(SCHEMA, [[value] for value in row])
        assert alone.tobytes() == found.tobytes()


def test_every_number_has_a_name() -> None:
    assert column_names(SCHEMA)[:8] == [
        "plain",
        "ranked",
        "ranked is missing",
        "binned",
        "binned below 2",
        "binned from 2",
        "binned from 5",
        "binned is missing",
    ]
    assert column_names(SCHEMA)[8:15] == [
        "kind = a",
        "kind = b",
        "kind = 1",
        "kind = another value",
        "kind is missing",
        "sure = a",
        "sure = another value",
    ]


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("1.5", ".", 1.5),
        ("1,5", ",", 1.5),
        ("1,5", ".", math.nan),
        ("1.5", ",", math.nan),
        ("1.000,5", ",", math.nan),
        ("1_000", ".", math.nan),
        ("-3e2", ".", -300),
        ("9" * 100_000, ".", math.inf),
        ("1e-999999", ".", 0),
        ("words", ".", math.nan),
        ("", ".", math.nan),
    ],
)
def test_numbers(text: str, decimal: str, number: float) -> None:
    np.testing.assert_equal(to_number(text, decimal), number)


@given(st.lists(VALUES, max_size=6), st.sampled_from([".", ","]))
def test_many_numbers_are_read_as_one_by_one(texts: list[str], decimal: str) -> None:
    missing = frozenset({"", "NA", "7"})
    expected = [
        math.nan if text in missing else to_number(text, decimal) for text in texts
    ]
    np.testing.assert_array_equal(to_numbers(texts, missing, decimal), expected)
    usual = [text for text in texts if not math.isnan(to_number(text, decimal))]
    found = to_numbers(usual, frozenset(), decimal).tolist()
    assert found == [to_number(text, decimal) for text in usual]


def test_values_outside_of_the_range_are_its_ends() -> None:
    column = Column(range=(0, 10), quantiles=(2, 4, 8))
    encoded = encode(schema_of(x=column), [["-5", "2", "4", "6", "8", "10", "1e400"]])
    assert encoded[:, 0].tolist() == [-1, -1, 0, 0.5, 1, 1, 1]


def test_one_value_is_the_middle_of_its_quantiles() -> None:
    column = Column(range=(0, 1), quantiles=(0.5, 0.5))
    assert scale(column, np.array([0.0, 0.5, 1.0])).tolist() == [0, 0, 0]


def test_a_number_may_stand_for_a_missing_value() -> None:
    found = to_numbers(["1", "-999", "2"], frozenset({"", "-999"}))
    np.testing.assert_array_equal(found, [1.0, math.nan, 2.0])
