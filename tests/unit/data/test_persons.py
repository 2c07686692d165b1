"""Whose a record is: names become numbers, and one new person renumbers nobody's belonging."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.config.parsing import ConfigError
from fedaux.data.persons import factorize, name_or_nobody, persons_from_array, persons_from_paths, to_name
from helpers.own_records import groups


@pytest.mark.parametrize(
    ("value", "name"),
    [(3, "3"), (3.0, "3"), ("3", "3"), (2.5, "2.5"), (float("nan"), None), (None, None), ("", ""), (True, "True")],
)
def test_a_name_is_the_same_however_a_table_stores_it(value: object, name: str | None) -> None:
    assert to_name(value) == name


def test_what_cannot_be_told_is_nobodys_name() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    found = [name_or_nobody(value) for value in (10**5000, nested, None, "ann", [1])]
    assert found == ["", "", "", "ann", "[1]"]


@given(st.lists(st.sampled_from("abcde")))
def test_numbers_follow_the_first_appearance(names: list[str]) -> None:
    assert factorize(names).tolist() == groups(names)


@given(st.lists(st.sampled_from("abc"), min_size=2), st.sampled_from("abcd"), st.data())
def test_who_belongs_together_does_not_depend_on_another_record(
    names: list[str], other: str, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(names) - 1))
    before, after = factorize(names), factorize([*names[:place], other, *names[place + 1 :]])
    kept = np.delete(np.arange(len(names)), place)
    assert ((before[kept, None] == before[kept]) == (after[kept, None] == after[kept])).all()


def test_arrays_of_names_and_of_numbers(tmp_path: Path) -> None:
    for name, persons in {"words": ["ann", "bob", "ann", ""], "numbers": [7.0, np.nan, 7.0, 8.0]}.items():
        np.save(tmp_path / f"{name}.npy", np.array(persons))
        assert persons_from_array(tmp_path / f"{name}.npy", 4).tolist() == [0, 1, 0, 2]
    with pytest.raises(ValueError, match="one person for each of the 5 rows of x, not 4"):
        persons_from_array(tmp_path / "words.npy", 5)
    with pytest.raises(FileNotFoundError, match=r"data\.person = 'gone' names it"):
        persons_from_array(tmp_path / "gone.npy", 4)


def test_one_person_in_an_array_of_texts(tmp_path: Path) -> None:
    np.save(tmp_path / "who.npy", np.array(["7", "7.0", "7.00", "-7.0", "-7", "7.5", "ann.0", "07.0"]))
    assert persons_from_array(tmp_path / "who.npy", 8).tolist() == [0, 0, 0, 1, 1, 2, 3, 4]


def test_paths_by_a_pattern() -> None:
    root = Path("/data/p9")  # what lies above the folder is not part of a person's name
    files = [root / name for name in ("flu/p1_a.png", "flu/p2_a.png", "cold/p1_b.png", "none/stray.png")]
    assert persons_from_paths(r"p([0-9])", files, root).tolist() == [0, 1, 0, 2]
    assert persons_from_paths("^[a-z]+", files, root).tolist() == [0, 0, 1, 2]
    with pytest.raises(ConfigError, match=r"data\.person = '\(' is no regular expression"):
        persons_from_paths("(", files, root)
