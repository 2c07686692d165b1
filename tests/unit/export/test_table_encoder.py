"""A schema as layers of a network is the encoding of its records."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedaux.data.table_encoding import column_names, encode
from fedaux.data.table_schema import Column, TableHeader, TableSchema
from fedaux.export.table_encoder import (
    TableEncoder,
    breakpoints,
    describe_columns,
    random_rows,
)

SCHEMA = TableSchema(
    TableHeader(),
    {
        "plain": Column(range=(-1, 10)),
        "ranked": Column(range=(0, 100), quantiles=(0, 1, 1, 1, 9, 90), missing=True),
        "level": Column(range=(0, 1), quantiles=(0.5, 0.5)),
        "binned": Column(range=(0, 10), bins=(2, 5), missing=True),
        "kind": Column("category", values=("a", "b", "1"), missing=True),
        "sure": Column("category", values=("a",)),
        "flag": Column("flag", values=("0", "1"), missing=True),
        "plain flag": Column("flag", values=("no", "yes")),
    },
    {},
)


def texts(rows: NDArray[np.float64]) -> list[list[str]]:
    """The rows as a file has them."""
    found: list[list[str]] = []
    for place, column in enumerate(SCHEMA.columns.values()):
        cells: list[str] = []
        for value in rows[:, place].tolist():
            if np.isnan(value):
                cells.append("")
            elif column.kind == "number":
                cells.append(repr(value))
            elif value < 0:
                cells.append("something else")
            else:
                cells.append(column.values[int(value)])
        found.append(cells)
    return found


def check(rows: NDArray[np.float64]) -> None:
    found = TableEncoder(SCHEMA)(torch.from_numpy(rows)).numpy()
    assert found.dtype == np.float32
    assert found.shape == (len(rows), len(column_names(SCHEMA)))
    np.testing.assert_allclose(found, encode(SCHEMA, texts(rows)), atol=1e-7)


@pytest.mark.parametrize("size", [1, 2, 500])
def test_layers_encode_as_a_site_does(size: int) -> None:
    check(random_rows(SCHEMA, size))


NUMBER = st.sampled_from([-np.inf, -1, 0, 0.5, 1, 2, 5, 9, 10, 90, 100, np.inf, np.nan])


@given(st.tuples(NUMBER, NUMBER, NUMBER, NUMBER))
def test_bounds_and_infinite_numbers_are_the_same(
    numbers: tuple[float, float, float, float],
) -> None:
    check(np.array([[*numbers, 2, 0, 1, 0]]))


def test_a_scale_that_does_not_rise_stays_where_it_is() -> None:
    points, places = breakpoints(SCHEMA.columns["level"])
    assert (points.tolist(), places.tolist()) == ([0.5, 1.5], [0, 0])


def test_what_a_row_is_made_of() -> None:
    described = describe_columns(SCHEMA)
    assert described[0] == {"column": "plain", "kind": "number"}
    assert described[4]["values"] == ["a", "b", "1"]
    assert np.isnan(random_rows(SCHEMA, 500)).any(axis=0).all()
