"""What `fedaux init table` keeps of a large file: facts of all records, and the values
of some.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fedaux.data import table_texts
from fedaux.data.table_choices import propose
from fedaux.data.table_texts import MOST_NAMES, ColumnTexts, read_texts

COUNT = 1_000


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_texts, "SAMPLED", 100)
    monkeypatch.setattr(table_texts, "RECORDS_AT_ONCE", 64)


def write(folder: Path) -> Path:
    """Facts that single records show, which are none of every tenth."""
    lines = ["site,visit,age,grade,ward,same,rare,y"]
    for number in range(COUNT):
        age = 500 if number == 333 else 20 + number % 37
        ward = "Z" if number == 444 else "AB"[number % 2]
        grade = "" if number == 555 else str(number % 5)
        same = "x" if number == 666 else "NO"
        rare = f"r{number % 2}" if number % 3 == 0 and number > 700 else ""
        site = "Rome" if number % 3 else "Oslo"
        known = (site, 7000 + number, age, grade, ward, same, rare)
        lines.append(",".join(map(str, [*known, "ny"[number % 2]])))
    file = folder / "a.csv"
    file.write_text("\n".join(lines))
    return file


def test_facts_come_from_all_records_and_values_from_some(tmp_path: Path) -> None:
    table = read_texts(write(tmp_path), "y", "site")
    assert len(table) == COUNT
    assert [len(column.sample) for column in table.columns.values()] == [100] * 8
    assert table.columns["visit"].sample[:3] == ["7000", "7010", "7020"]
    age = table.columns["age"]
    assert (age.least, age.largest, age.is_number, age.is_whole) == (
        20,
        500,
        True,
        True,
    )
    assert "500" not in age.sample
    grade = table.columns["grade"]
    assert (grade.missing, grade.first_missing, grade.present) == (1, 555, 999)
    assert grade.counts["4"] == 200
    assert table.columns["rare"].sites == {"Oslo"}


def test_a_schema_knows_what_single_records_show(tmp_path: Path) -> None:
    proposal = propose(write(tmp_path), "y", "site")
    columns = proposal.schema.columns
    assert columns["age"].range == (0, 500)
    assert columns["grade"].missing
    assert columns["grade"].values == ("0", "1", "2", "3", "4")
    assert columns["ward"].values == ("A", "B", "Z")
    assert columns["same"].values == ("NO", "x")
    assert proposal.schema.dropped["visit"] == "an identifier: a number for each record"
    assert any("rare: only Oslo has values" in note for note in proposal.notes)
    assert proposal.schema.header.classes == ("n", "y")


def test_names_are_counted_until_there_are_too_many() -> None:
    column = ColumnTexts.of([f"n{number}" for number in range(MOST_NAMES + 1)], ".")
    assert not column.counted
    assert column.distinct == "more than 1,000"
    before = len(column.counts)
    column.add(["another"], 2_000, ".")
    assert len(column.counts) == before
    assert not column.is_number
