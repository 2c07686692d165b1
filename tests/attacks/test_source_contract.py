"""A source is a function of each record alone: whatever one record is, the others keep
their bits, labels and persons.

Neighbouring data sets differ in one record, which is exchanged, added or removed; the
site must answer for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.sections import DataConfig
from fedaux.data import tables
from fedaux.data.federated import read_private
from fedaux.data.records import UNDECLARED
from fedaux.data.sources import SOURCES
from helpers.odd_records import CLASSES, FORMATS, Format

ODD = [(name, odd) for name, form in FORMATS.items() for odd in form.odd]
PAIRS = 9  # exchange, add and remove, at the first, a middle and the last place
CASES = 3942  # pairs of neighbours in all, as docs/proofs.md says
REFUSED = {"cifar10", "cifar100", "stl10", "tinyimagenet", "schema"}
CONSTANT = {"digits"}  # comes with a package: no record of it is anybody's

Facts = tuple[list[Any], list[int], list[list[bool]]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))


class Reading:
    """What a site makes of a list of records."""

    def __init__(self, form: Format, folder: Path, records: Sequence[Any]) -> None:
        folder.mkdir()
        written = form.write(folder, records)
        self.rows, self.count = written.rows, len(records)
        self.found = read_private(form.settings(written.path), form.classes)
        assert len(self.found) == sum(row is not None for row in self.rows)

    def facts(self, without: int = -1) -> Facts:
        """(inputs of a model to the bit, labels, which belong to one person) of all
        records but one.
        """
        others = [self.rows[place] for place in range(self.count) if place != without]
        rows = np.array([row for row in others if row is not None], dtype=np.int64)
        inputs = [
            x.encode() if isinstance(x, str) else x.numpy().tobytes()
            for x in self.found.batch(rows)
        ]
        persons = np.zeros(0) if self.found.person is None else self.found.persons[rows]
        return (
            inputs,
            self.found.labels[rows].tolist(),
            (persons[:, None] == persons).tolist(),
        )


def neighbours(
    form: Format, odd: Any, folder: Path
) -> Iterator[tuple[str, Facts, Facts]]:
    """What is made of the records that two data sets share, in the one and in the
    other.
    """
    usual, count = list(form.usual), len(form.usual)
    before = Reading(form, folder / "usual", usual)
    for place, index in (("first", 0), ("middle", count // 2), ("last", count - 1)):
        strange = form.named(odd, place)
        exchanged = Reading(
            form,
            folder / f"{place}-exchanged",
            [*usual[:index], strange, *usual[index + 1 :]],
        )
        yield f"exchange the {place}", before.facts(index), exchanged.facts(index)
        end = count if place == "last" else index
        added = Reading(
            form, folder / f"{place}-added", [*usual[:end], strange, *usual[end:]]
        )
        yield f"add the {place}", before.facts(), added.facts(end)
        # so that the odd record takes the place of the one that goes
        inner = index + 1 if place == "first" else index
        beside = Reading(
            form, folder / f"{place}-beside", [*usual[:inner], strange, *usual[inner:]]
        )
        yield (
            f"remove the {place}",
            beside.facts(index if place == "first" else index + 1),
            exchanged.facts(),
        )


@pytest.mark.parametrize(("name", "odd"), ODD)
def test_one_record_changes_no_other(name: str, odd: str, tmp_path: Path) -> None:
    pairs = list(neighbours(FORMATS[name], FORMATS[name].odd[odd], tmp_path))
    assert len(pairs) == PAIRS
    for change, one, other in pairs:
        assert one == other, change


@pytest.mark.parametrize(
    ("name", "odd"),
    [(name, odd) for name, odd in ODD if FORMATS[name].source == "table"],
)
def test_one_record_changes_no_other_of_a_large_table(
    name: str, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LARGE_TABLE", 0)
    pairs = list(neighbours(FORMATS[name], FORMATS[name].odd[odd], tmp_path))
    for change, one, other in pairs:
        assert one == other, change


@pytest.mark.parametrize("name", FORMATS)
def test_usual_records_are_told_apart(name: str, tmp_path: Path) -> None:
    """Otherwise nothing could be seen to change."""
    form = FORMATS[name]
    inputs, labels, together = Reading(form, tmp_path / "usual", form.usual).facts()
    assert len(set(inputs)) == len(inputs)
    assert len(set(labels) - {UNDECLARED}) >= 3
    assert not form.person or {same for row in together for same in row} == {
        False,
        True,
    }


def test_every_source_has_its_cases() -> None:
    assert {
        form.source for form in FORMATS.values() if ":" not in form.source
    } | REFUSED | CONSTANT == set(SOURCES)
    assert PAIRS * len(ODD) == CASES


@pytest.mark.parametrize("source", sorted(REFUSED))
def test_a_published_data_set_is_nobodys_own(source: str) -> None:
    with pytest.raises(
        ConfigError,
        match="Choose npy, npz, images, csv, jsonl, parquet, huggingface, table, or",
    ):
        read_private(DataConfig(source, "nowhere", partition="own"), CLASSES)


def test_the_digits_are_always_the_same() -> None:
    found = read_private(DataConfig("digits", partition="own"), tuple("0123456789"))
    assert len(found) == 1797
    assert set(found.labels.tolist()) == set(range(10))
