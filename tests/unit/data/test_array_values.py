"""Values of arrays, of any type that one of them may force upon all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.data.array_values import decoded, load_values
from fedaux.data.pickles import Unknown


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1, 2], [1, 2]),
        ([1.0, 2.5], [1.0, 2.5]),
        ([True, False], [True, False]),
        (["a", "Größe"], ["a", "Größe"]),
        ([b"a", b"\xff"], ["a", "\ufffd"]),
        ([1, None], [1, None]),
        ([10**30, "a"], [10**30, "a"]),
    ],
)
def test_values_are_pythons_own(tmp_path: Path, values: list[Any], found: list[Any]) -> None:
    np.save(tmp_path / "a.npy", np.array(values))
    assert load_values(tmp_path / "a.npy") == found
    np.save(tmp_path / "b.npy", np.array(values)[:, None])
    assert load_values(tmp_path / "b.npy") == found


def test_objects_are_read_without_their_code(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, "flu", Path("x"), np.int64(3)], dtype=object))
    one, two, three, four = load_values(tmp_path / "a.npy")
    assert (one, two, four) == (1, "flu", 3)
    assert isinstance(three, Unknown)


@pytest.mark.parametrize("order", "<>")
def test_what_is_no_character_is_replaced(order: str) -> None:
    array = np.array(["abc", "", "x"], dtype=f"{order}U3")
    array.view(f"{order}u4").reshape(3, 3)[2] = [0x110000, 0xD800, 0]
    assert decoded(array) == ["abc", "", "\ufffd\ufffd"]
    assert decoded(np.zeros(2, "U0")) == ["", ""]
