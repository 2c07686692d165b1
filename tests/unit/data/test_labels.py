"""The class of one label, whatever its type."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fedaux.data.labels import DeclaredClasses

CLASSES = DeclaredClasses.of(("flu", "cold", "none"))
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (0, 0), (2, 2), (3, -1), (-1, -1), (10**30, -1), (1.0, 1), (1.5, -1), (NAN, -1), (INF, -1), (-INF, -1),
        (np.int8(1), 1), (np.float32(2), 2), (np.uint64(2**64 - 1), -1), (np.longdouble(1), 1), (Fraction(1), 1),
        ("flu", 0), ("Flu", -1), ("", -1), ("1", -1), (True, -1), (np.True_, -1), (None, -1), ([1], -1), (1 + 0j, -1),
        (b"flu", -1), (object(), -1), ({}, -1),
    ],
)  # fmt: skip
def test_a_text_is_a_name_and_a_number_a_place(value: Any, label: int) -> None:
    assert CLASSES.label(value) == label


def test_truths_are_names_where_they_are_declared() -> None:
    assert [DeclaredClasses.of(("True", "False")).label(value) for value in (True, False, "True", 1)] == [0, 1, 0, 1]


def test_numbers_may_have_names_of_their_own() -> None:
    classes = DeclaredClasses.of(("flu", "cold"), ("none", "cold", "flu"))
    assert [classes.label(value) for value in (0, 1, 2, 3, "flu", "none")] == [-1, 1, 0, -1, 0, -1]


def test_a_name_of_digits_is_found_in_a_column_of_floats() -> None:
    classes = DeclaredClasses.of(("1", "2", "3.0"))
    assert [classes.by_name(name) for name in ("1", "1.0", "2.00", "3.0", "3", "1.5", "-1.0", "1.")] == [
        0, 0, 1, 2, -1, -1, -1, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "label"),
    [(1, 1), (1.0, 1), ("1", 1), ("1.0", 1), (True, 1), ("True", 1), ("False", 0), (1 + 0j, 1), (1 + 2j, -1),
     ("cold", 1), ("1e0", -1), ("1_0", -1), ("-1", -1), ("9" * 5000, -1), ("", -1), (None, -1), (NAN, -1)],
)  # fmt: skip
def test_in_an_array_a_number_is_one_in_every_type(value: Any, label: int) -> None:
    assert CLASSES.array_label(value) == label
