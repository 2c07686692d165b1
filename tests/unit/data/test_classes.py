"""Classes that were declared beforehand: nobody opens data to say what they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import Exit
from fedaux.data.classes import named_by_numbers, relabel
from fedaux.data.federated import class_names, open_private
from fedaux.data.record_spec import RecordsError
from fedaux.data.records import Corpus, Records
from helpers.own_records import CLASSES, site


def test_the_file_is_in_the_folder_of_the_data_or_beside_the_file_of_each_client(tmp_path: Path) -> None:
    for client in ("a", "b"):
        (tmp_path / client).mkdir()
        (tmp_path / client / "classes.txt").write_text(f"one\nof {client}")
    for path in (tmp_path / "{client}", tmp_path / "{client}" / "records.csv"):
        assert class_names(site("csv", path, ()), "b") == ("one", "of b")


def test_who_has_declared_nothing_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        class_names(site("csv", tmp_path / "{client}" / "records.csv", ()), "a")
    assert 'write their names into [data], classes = ["first", "second", ...]' in str(told.value)
    assert f"or one a line into {tmp_path / 'a' / 'classes.txt'}" in str(told.value)
    assert told.value.code == Exit.SETTINGS
    with pytest.raises(ConfigError, match=r"at every site\.$"):
        open_private(site("digits", classes=()), "a")


@pytest.mark.parametrize(("text", "reason"), [("", "one class a line"), ("a\n\nb", "empty line"), ("a\na", "differ")])
def test_a_file_that_declares_nothing_sensible(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "classes.txt").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        class_names(site("npy", tmp_path, ()), "a")


def test_declaring_what_a_corpus_says_itself_changes_nothing() -> None:
    y = np.array([2, 0, 1])
    corpus = Corpus(Records(np.zeros((3, 1)), y), Records(np.zeros((3, 1))), CLASSES)
    found = relabel(corpus, CLASSES)
    assert (found.train.labels.tolist(), found.test and found.test.y, found.classes) == ([2, 0, 1], None, CLASSES)
    assert relabel(corpus, ("none", "flu")).train.labels.tolist() == [0, 1, -1]


def test_labels_without_names_are_the_classes_that_training_has() -> None:
    """Labels from 1 on made a class 0 that nobody has."""
    corpus = Corpus(Records(np.zeros((3, 1)), np.array([1, 2, 4])), Records(np.zeros((2, 1)), np.array([4, 1])))
    found = named_by_numbers(corpus)
    assert (found.classes, found.train.labels.tolist()) == (("1", "2", "4"), [0, 1, 2])
    assert found.test is not None
    assert found.test.labels.tolist() == [2, 0]
    assert "labels 1 to 4 without names: they are 3 classes" in found.notes[0]
    plain = Corpus(Records(np.zeros((2, 1)), np.array([1, 0])))
    assert named_by_numbers(plain).classes == ("0", "1")
    assert named_by_numbers(plain).notes == ()
    assert named_by_numbers(named_by_numbers(plain)).classes == ("0", "1")
    with pytest.raises(RecordsError, match="the test records have the label 3, which no training record has"):
        named_by_numbers(Corpus(corpus.train, Records(np.zeros((1, 1)), np.array([3]))))
