"""What `fedaux init table` keeps of a large file: facts of all records, and the values
of some.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fedaux.data import table_texts
from fedaux.data.table_choices import propose, propose_schema
from fedaux.data.table_texts import (
    MOST_NAMES,
    ColumnTexts,
    joined_texts,
    read_texts,
    texts_of_frame,
)

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


def write_sites(folder: Path) -> list[Path]:
    """Three files, of which the second one has a decimal comma, and a value only it
    has.
    """
    files = []
    for name, count, mark in (("a", 900, ","), ("b", 250, ";"), ("c", 30, ",")):
        lines = [mark.join(("dose", "ward", "own", "y"))]
        for number in range(count):
            dose = f"{number % 8}.5" if mark == "," else f"{number % 8 + 30},5"
            own = str(number % 4 + 0.5) if name == "b" else ""
            if name == "b":
                own = own.replace(".", ",")
            ward = "Q" if (name, number) == ("b", 7) else "AB"[number % 2]
            lines.append(mark.join((dose, ward, own, "ny"[number % 2])))
        file = folder / f"{name}.csv"
        file.write_text("\n".join(lines))
        files.append(file)
    return files


def test_several_files_are_looked_at_in_equal_shares(tmp_path: Path) -> None:
    tables = [read_texts(file, "y") for file in write_sites(tmp_path)]
    assert [len(table.columns["dose"].sample) for table in tables] == [100, 84, 30]
    whole = joined_texts(tables)
    assert (len(whole), whole.marks.decimal) == (1180, ".")
    dose = whole.columns["dose"]
    assert (dose.least, dose.largest, dose.present) == (0.5, 37.5, 1180)
    assert dose.is_number
    assert len(dose.sample) <= 100
    # a quarter of a file's records in four is a quarter of the values
    of_b = [value for value in dose.sample if float(value) > 30]
    assert abs(len(of_b) / len(dose.sample) - 250 / 1180) < 0.02
    assert dose.counts["36.5"] == tables[1].columns["dose"].counts["36,5"] > 0
    own = whole.columns["own"]
    assert (own.missing, own.first_missing, own.present) == (930, 0, 250)


def test_a_schema_of_several_files_knows_what_one_of_them_shows(
    tmp_path: Path,
) -> None:
    files = write_sites(tmp_path)
    proposal = propose(files, "y")
    columns = proposal.schema.columns
    assert columns["dose"].range == (0, 40)
    assert columns["ward"].values == ("A", "B", "Q")
    assert columns["own"].missing
    assert set(proposal.schema.written) == {"b.csv"}
    assert any(f"own: only {files[1]} has values" in note for note in proposal.notes)


def test_a_frame_is_looked_at_like_its_file(tmp_path: Path) -> None:
    file = write(tmp_path)
    frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    known = read_texts(file, "y", "site")
    table = texts_of_frame(frame, "data", "y", "site")
    assert table.columns == known.columns
    assert propose_schema([table], "y", "site")[0] == propose(file, "y", "site").schema


def test_numbers_that_no_sampled_record_has_are_seen(tmp_path: Path) -> None:
    lines = ["x,code,y"]
    for number in range(COUNT):
        code = str(4.5 + number) if 600 < number < 615 and number % 10 else ""
        lines.append(f"{number % 7}.5,{code},{'ny'[number % 2]}")
    file = tmp_path / "a.csv"
    file.write_text("\n".join(lines))
    assert not any(read_texts(file).columns["code"].sample)
    code = propose(file, "y").schema.columns["code"]
    assert (code.kind, code.missing) == ("number", True)
    assert code.range == (600, 620)


def test_the_names_of_an_index_are_not_all_counted(tmp_path: Path) -> None:
    lines = [",x,y", *(f"{number},1,n" for number in range(MOST_NAMES + 50))]
    file = tmp_path / "a.csv"
    file.write_text("\n".join(lines))
    assert not read_texts(file).columns[""].counted
    assert read_texts(file, "x").columns["x"].counted


def test_codes_with_a_decimal_mark_are_listed_as_each_file_writes_them(
    tmp_path: Path,
) -> None:
    """A site's file is read as it is written, so each spelling needs a place."""
    for name, comma in (("a.csv", False), ("b.csv", True)):
        mark, delimiter = (",", ";") if comma else (".", ",")
        lines = [delimiter.join(["stage", "dose", "y"])]
        for number in range(60):
            stage = (f"1{mark}5", f"2{mark}5", "low")[number % 3]
            dose = f"{number}{mark}25"
            lines.append(delimiter.join([stage, dose, "ab"[number % 2]]))
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    tables = [read_texts(tmp_path / name) for name in ("a.csv", "b.csv")]
    schema, _ = propose_schema(tables, "y")
    assert set(schema.columns["stage"].values) == {"1.5", "2.5", "1,5", "2,5", "low"}
    assert schema.columns["dose"].kind == "number"


@pytest.mark.parametrize("spellings", [("0.5", "0.50"), ("-1e308", "1e308")])
def test_numbers_without_a_range_are_left_out(
    spellings: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "doses.csv"
    rows = [f"{spellings[n % 2]},{n % 7}.5,{'ab'[n % 2]}" for n in range(40)]
    file.write_text("\n".join(["dose,other,y", *rows]) + "\n")
    schema, _ = propose_schema([read_texts(file)], "y")
    assert "dose" in schema.dropped
    assert "other" in schema.columns
