"""The class of one label, whatever its type; whose a record is; classes that were
declared beforehand.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import Exit
from fedaux.data.arrays import persons_from_array
from fedaux.data.federated import class_names, open_private
from fedaux.data.labels import (
    DeclaredClasses,
    factorize,
    name_or_nobody,
    named_by_numbers,
    relabel,
    to_name,
)
from fedaux.data.records import Corpus, Records, RecordsError
from helpers.own_records import CLASSES, groups, site

DECLARED = DeclaredClasses.of(CLASSES)
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
    assert DECLARED.label(value) == label


def test_truths_are_names_where_they_are_declared() -> None:
    assert [
        DeclaredClasses.of(("True", "False")).label(value)
        for value in (True, False, "True", 1)
    ] == [0, 1, 0, 1]


def test_numbers_may_have_names_of_their_own() -> None:
    classes = DeclaredClasses.of(("flu", "cold"), ("none", "cold", "flu"))
    assert [classes.label(value) for value in (0, 1, 2, 3, "flu", "none")] == [
        -1,
        1,
        0,
        -1,
        0,
        -1,
    ]


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
    assert DECLARED.array_label(value) == label


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (3, "3"),
        (3.0, "3"),
        ("3", "3"),
        (2.5, "2.5"),
        (float("nan"), None),
        (None, None),
        ("", ""),
        (True, "True"),
    ],
)
def test_a_name_is_the_same_however_a_table_stores_it(
    value: object, name: str | None
) -> None:
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
    before, after = (
        factorize(names),
        factorize([*names[:place], other, *names[place + 1 :]]),
    )
    kept = np.delete(np.arange(len(names)), place)
    assert (
        (before[kept, None] == before[kept]) == (after[kept, None] == after[kept])
    ).all()


def test_one_person_in_an_array_of_texts(tmp_path: Path) -> None:
    np.save(
        tmp_path / "who.npy",
        np.array(["7", "7.0", "7.00", "-7.0", "-7", "7.5", "ann.0", "07.0"]),
    )
    assert persons_from_array(tmp_path / "who.npy", 8).tolist() == [
        0,
        0,
        0,
        1,
        1,
        2,
        3,
        4,
    ]


def test_the_file_is_in_the_folder_of_the_data_or_beside_the_file_of_each_client(
    tmp_path: Path,
) -> None:
    for client in ("a", "b"):
        (tmp_path / client).mkdir()
        (tmp_path / client / "classes.txt").write_text(f"one\nof {client}")
    for path in (tmp_path / "{client}", tmp_path / "{client}" / "records.csv"):
        assert class_names(site("csv", path, ()), "b") == ("one", "of b")


def test_who_has_declared_nothing_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        class_names(site("csv", tmp_path / "{client}" / "records.csv", ()), "a")
    assert 'Write their names into [data], classes = ["first", "second", ...]' in str(
        told.value
    )
    assert f"or one a line into {tmp_path / 'a' / 'classes.txt'}" in str(told.value)
    assert told.value.code == Exit.SETTINGS
    with pytest.raises(ConfigError, match=r"at every site\.$"):
        open_private(site("digits", classes=()), "a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "one class a line"), ("a\n\nb", "empty line"), ("a\na", "differ")],
)
def test_a_file_that_declares_nothing_sensible(
    tmp_path: Path, text: str, reason: str
) -> None:
    (tmp_path / "classes.txt").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        class_names(site("npy", tmp_path, ()), "a")


def test_declaring_what_a_corpus_says_itself_changes_nothing() -> None:
    y = np.array([2, 0, 1])
    corpus = Corpus(Records(np.zeros((3, 1)), y), Records(np.zeros((3, 1))), CLASSES)
    found = relabel(corpus, CLASSES)
    assert (
        found.train.labels.tolist(),
        found.test and found.test.y,
        found.classes,
    ) == ([2, 0, 1], None, CLASSES)
    assert relabel(corpus, ("none", "flu")).train.labels.tolist() == [0, 1, -1]


def test_labels_without_names_are_the_classes_that_training_has() -> None:
    """Labels from 1 on made a class 0 that nobody has."""
    corpus = Corpus(
        Records(np.zeros((3, 1)), np.array([1, 2, 4])),
        Records(np.zeros((2, 1)), np.array([4, 1])),
    )
    found = named_by_numbers(corpus)
    assert (found.classes, found.train.labels.tolist()) == (("1", "2", "4"), [0, 1, 2])
    assert found.test is not None
    assert found.test.labels.tolist() == [2, 0]
    assert "labels 1 to 4 without names: they are 3 classes" in found.notes[0]
    plain = Corpus(Records(np.zeros((2, 1)), np.array([1, 0])))
    assert named_by_numbers(plain).classes == ("0", "1")
    assert named_by_numbers(plain).notes == ()
    assert named_by_numbers(named_by_numbers(plain)).classes == ("0", "1")
    with pytest.raises(
        RecordsError,
        match="they have the label 3, which no training record has",
    ):
        named_by_numbers(Corpus(corpus.train, Records(np.zeros((1, 1)), np.array([3]))))
