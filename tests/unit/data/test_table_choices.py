"""What `fedaux init table` proposes: columns by their values, with the reason for what
is left out, and settings that load.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.data.table_choices import (
    names_of_files,
    propose,
    propose_column,
    release_choices,
    site_names,
)
from fedaux.data.table_encoding import encode
from fedaux.data.table_schema import Column, TableHeader, TableSchema
from fedaux.data.table_texts import ColumnTexts, TableError, read_texts
from fedaux.data.tables import table as read_by_schema

RNG = np.random.default_rng(0)
SCHEMA = TableSchema(TableHeader(), {}, {})


def rows_of(count: int = 60) -> dict[str, list[Any]]:
    return {
        "hospital": ["Oslo", "St. Mary's"] * (count // 2),
        "patient_id": [f"p{number}" for number in range(count)],
        "visit": list(range(1001, 1001 + count)),
        "age": RNG.integers(20, 80, count).tolist(),
        "pressure": np.round(RNG.normal(130, 20, count), 1).tolist(),
        "stage": RNG.integers(1, 5, count).tolist(),
        "smoker": ["no", "Yes", "", "no"] * (count // 4),
        "colour": ["red", "green", "blue"] * (count // 3),
        "born": [f"19{number:02}-01-31" for number in range(count)],
        "remark": [f"came back after {number} days" for number in range(count)],
        "country": ["NO"] * count,
        "empty": ["NA"] * count,
        "diagnosis": ["ill", "healthy"] * (count // 2),
    }


def write(
    folder: Path,
    columns: dict[str, list[Any]],
    name: str = "a.csv",
    encoding: str = "utf-8",
    **options: Any,
) -> Path:
    file = folder / name
    with file.open("w", newline="", encoding=encoding) as stream:
        writer = csv.writer(stream, **options)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return file


def test_columns_are_known_by_their_values(tmp_path: Path) -> None:
    file = write(tmp_path, rows_of())
    schema = propose(file, "diagnosis", "hospital").schema
    assert schema.header.classes == ("healthy", "ill")
    assert list(schema.columns) == ["age", "pressure", "stage", "smoker", "colour"]
    assert schema.columns["age"].kind == "number"
    assert schema.columns["age"].range == (20, 80)
    assert schema.columns["stage"] == Column("category", values=("1", "2", "3", "4"))
    assert schema.columns["smoker"] == Column(
        "flag", values=("no", "Yes"), missing=True
    )
    assert schema.columns["colour"].values == ("blue", "green", "red")
    assert schema.dropped == {
        "hospital": "the site's name",
        "patient_id": "an identifier: nearly every value is another",
        "visit": "an identifier: a number for each record",
        "born": "dates: make numbers of them, such as an age",
        "remark": "free text",
        "country": "the same in all records",
        "empty": "without values",
    }


def test_no_exact_value_of_a_record_is_the_end_of_a_range() -> None:
    values = [f"{value:.3f}" for value in RNG.normal(130, 20, 200)]
    column, _ = propose_column("pressure", ColumnTexts.of(values, "."), ".", 200)
    assert column is not None
    low, high = column.range
    assert low % 10 == high % 10 == 0
    assert low < min(map(float, values)) < max(map(float, values)) < high
    assert column.quantiles[0] == low
    assert column.quantiles[-1] == high
    small, _ = propose_column(
        "rate", ColumnTexts.of(["0.0123", "0.0456", "0.0311"] * 9, "."), ".", 27
    )
    assert small is not None
    assert small.range == (0.01, 0.05)


def test_public_rows_decide_and_private_ones_do_not(tmp_path: Path) -> None:
    columns = rows_of()
    public = {
        name: values
        for name, values in rows_of().items()
        if name not in ("diagnosis", "hospital", "colour")
    }
    public_file = write(tmp_path, public, "public.csv")
    proposal = propose(write(tmp_path, columns), "diagnosis", "hospital", public_file)
    columns["age"][0] = 10**6
    columns["stage"][0] = 77
    other = propose(write(tmp_path, columns), "diagnosis", "hospital", public_file)
    assert other.schema == proposal.schema
    assert proposal.schema.header.confirmed
    assert proposal.schema.dropped["colour"] == "not in public.csv"
    assert proposal.notes == []
    alone = propose(write(tmp_path, columns), "diagnosis", "hospital")
    assert not alone.schema.header.confirmed
    assert alone.schema.columns["age"].range[1] >= 10**6
    assert any("write confirmed = true" in note for note in alone.notes)


def test_many_records_have_intervals() -> None:
    values = [str(value) for value in RNG.integers(0, 1000, 500)]
    assert propose_column("x", ColumnTexts.of(values, "."), ".", 9_999)[0].bins == ()  # type: ignore[union-attr]
    bins = propose_column("x", ColumnTexts.of(values, "."), ".", 10_000)[0].bins  # type: ignore[union-attr]
    assert len(bins) == 9


def test_a_frequent_value_has_an_interval_to_itself() -> None:
    """Of gains that are mostly zero, deciles would tell nothing."""
    gains = [0] * 900 + list(range(1000, 1100))
    column, _ = propose_column(
        "gain", ColumnTexts.of([str(gain) for gain in gains], "."), ".", 10_000
    )
    assert column is not None
    assert column.bins[:2] == (1000, 1009)
    assert len(column.bins) == 10
    alone = replace(SCHEMA, columns={"gain": column})
    intervals = encode(alone, [["0", "999", "1000", "1099"]])[:, 1:].argmax(axis=1)
    assert intervals.tolist() == [0, 0, 1, 10]

    losses = [-float(gain) for gain in gains]
    middle, _ = propose_column(
        "x", ColumnTexts.of([str(x) for x in losses + gains], "."), ".", 10_000
    )
    assert middle is not None
    bins = list(middle.bins)
    assert bins[bins.index(0) + 1] == 1000  # 0 to 999 are zeros
    assert bins[bins.index(0) - 1] <= -1000
    assert all(np.diff(bins) > 0)


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_how_a_file_is_written_is_found_out(tmp_path: Path, delimiter: str) -> None:
    columns = rows_of()
    columns["pressure"] = [
        str(value).replace(".", ",") for value in columns["pressure"]
    ]
    columns["größe"] = columns.pop("colour")
    file = write(tmp_path, columns, encoding="cp1252", delimiter=delimiter)
    schema = propose(file, "diagnosis", "hospital").schema
    assert schema.header.delimiter == delimiter
    assert schema.header.decimal == ","
    assert schema.header.encoding == "cp1252"
    assert schema.columns["größe"].values == ("blue", "green", "red")
    assert schema.columns["pressure"].kind == "number"
    (tmp_path / "schema.toml").write_text(schema.to_toml(), "utf-8")
    assert TableSchema.load(tmp_path / "schema.toml") == schema
    read = read_by_schema(file, tmp_path / "schema.toml")
    assert len(read.train) == 60


def changed(name: str, values: list[Any]) -> dict[str, list[Any]]:
    return rows_of() | {name: values}


@pytest.mark.parametrize(
    ("columns", "label", "said"),
    [
        (rows_of(), "disease", "has the columns hospital, patient_id"),
        (changed("diagnosis", ["ill"] * 60), "diagnosis", "it has 1 different values"),
        (rows_of(300), "visit", "it has 300 different values, and classes are 2 to"),
        (
            changed("diagnosis", ["Ill", "ill", "healthy"] * 20),
            "diagnosis",
            r"'Ill' \(20 records\) and 'ill' \(20\) are two spellings",
        ),
        (
            changed("diagnosis", ["ill", "", "healthy"] * 20),
            "diagnosis",
            "20 of 60 records have none, record 2 for one",
        ),
        ({"a": [1] * 9, "diagnosis": list("ab") * 4 + ["a"]}, "diagnosis", "no column"),
    ],
)
def test_wrong_use_is_named(
    tmp_path: Path, columns: dict[str, list[Any]], label: str, said: str
) -> None:
    with pytest.raises(TableError, match=said):
        propose(write(tmp_path, columns), label)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    for text, said in (
        ("a,b\n", "it has no record"),
        ("a,b,a\n1,2,3\n", "it has the column 'a' twice"),
        ("a,,b\n1,2,3\n", "column 2 has no name"),
    ):
        file.write_text(text)
        with pytest.raises(TableError, match=said):
            read_texts(file)
    with pytest.raises(FileNotFoundError):
        read_texts(tmp_path / "none.csv")


def test_files_may_be_written_in_several_ways(tmp_path: Path) -> None:
    """They were refused, "Save both alike"."""
    columns = rows_of()
    numbers = [str(value).replace(".", ",") for value in columns["pressure"]]
    files = [write(tmp_path, columns, f"{name}.csv") for name in "ab"]
    other = columns | {"pressure": numbers}
    files.append(write(tmp_path, other, "c.csv", delimiter=";", encoding="cp1252"))
    public = write(tmp_path, columns, "public.csv", delimiter="|")
    for shared in (None, public):
        proposal = propose(files, "diagnosis", "hospital", shared)
        schema = proposal.schema
        assert schema.header.delimiter == ","
        assert schema.header.site == ""
        assert schema.columns["pressure"].kind == "number"
        assert schema.written["c.csv"].delimiter == ";"
        assert "c.csv is written with ';', ',' and utf-8" in " ".join(proposal.notes)
        saved = tmp_path / "schema.toml"
        saved.write_text(schema.to_toml(), "utf-8")
        assert TableSchema.load(saved) == schema
        assert replace(schema, written={}).hash == schema.hash
        read = read_by_schema(tmp_path, saved, files=[file.name for file in files])
        assert read.site is not None
        assert read.site.tolist() == [0] * 60 + [1] * 60 + [2] * 60
        rows = read.train.x.reshape(3, 60, -1)
        assert np.array_equal(rows[0], rows[2])
    assert read_by_schema(public, saved, labels=False).train.x.shape[0] == 60


def test_files_of_one_name_are_written_alike(tmp_path: Path) -> None:
    files = []
    for name, mark in (("oslo", ","), ("rome", ";")):
        (tmp_path / name).mkdir()
        files.append(write(tmp_path / name, rows_of(), "table.csv", delimiter=mark))
    with pytest.raises(TableError, match=r"another file of the name table\.csv"):
        propose(files, "diagnosis")
    assert names_of_files(files) == ["oslo", "rome"]


def test_a_row_index_and_keys_are_left_out(tmp_path: Path) -> None:
    columns = {"": list(range(60)), **rows_of()}
    columns["key"] = RNG.integers(0, 2**62, 60).tolist()
    columns["income"] = (20_000 + RNG.integers(0, 90_000, 60)).tolist()
    schema = propose(write(tmp_path, columns), "diagnosis", "hospital").schema
    assert schema.dropped[""] == "row index"
    without_site = propose(tmp_path / "a.csv", "diagnosis").schema
    assert without_site.dropped[""] == "row index"
    assert schema.dropped["key"] == "an identifier: a number for each record"
    assert schema.columns["income"].kind == "number"
    saved = tmp_path / "schema.toml"
    saved.write_text(schema.to_toml(), "utf-8")
    assert TableSchema.load(saved) == schema
    assert len(read_by_schema(tmp_path / "a.csv", saved).train) == 60


def test_numbers_of_records_begin_anew_in_each_file(tmp_path: Path) -> None:
    files = [write(tmp_path, rows_of(), f"{name}.csv") for name in "ab"]
    schema = propose(files, "diagnosis").schema
    assert schema.dropped["visit"] == "an identifier: a number for each record"
    assert schema.dropped["patient_id"].startswith("an identifier")


def test_a_column_that_a_file_lacks_is_left_out(tmp_path: Path) -> None:
    columns = rows_of()
    files = [write(tmp_path, columns, "a.csv")]
    del columns["age"]
    files.append(write(tmp_path, columns, "b.csv"))
    assert propose(files, "diagnosis").schema.dropped["age"] == "not in b.csv"


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("age (years)", "years"),
        ("weight_kg", "kg"),
        ("dose [mg/l]", "mg/l"),
        ("weight", ""),
        ("ward_a", ""),
        ("flag (yes or no, please)", ""),
    ],
)
def test_units_are_those_of_the_names(name: str, unit: str) -> None:
    column, _ = propose_column(
        name, ColumnTexts.of(["1.5", "2.5", "4.0"] * 9, "."), ".", 27
    )
    assert column is not None
    assert column.unit == unit


def test_lines_of_another_length_are_told(tmp_path: Path) -> None:
    file = write(tmp_path, rows_of())
    file.write_text(file.read_text() + "x,y\n" + "Oslo,p," + "1," * 10 + "ill\n")
    with pytest.raises(TableError, match="records have none"):
        propose(file, "diagnosis")
    text = file.read_text().splitlines()
    file.write_text("\n".join([*text[:-2], text[-1]]))
    assert read_texts(file).short == 0
    file.write_text("\n".join([*text[:-2], text[-1] + ",more"]))
    assert "1 of 61 lines" in propose(file, "diagnosis").notes[0]


@pytest.mark.parametrize(
    ("records", "classes", "public", "expected"),
    [
        (
            1_999,
            2,
            100,
            {
                "prototypes": ["tabular"],
                "privacy.scorer": "class-moments",
                "privacy.embedding_dim": 0,
            },
        ),
        (
            500,
            7,
            200,
            {"privacy.scorer": "class-embedding", "privacy.embedding_dim": 14},
        ),
        # no public records say which directions matter
        (
            500,
            7,
            0,
            {"privacy.scorer": "class-embedding", "privacy.embedding_dim": 32},
        ),
        (2_000, 2, 200, {"privacy.embedding_dim": 0}),
        (2_000, 2, 0, {"privacy.embedding_dim": 0}),
        (10_000, 2, 200, {"privacy.embedding_dim": 100}),
    ],
)
def test_few_records_carry_few_directions(
    records: int, classes: int, public: int, expected: dict[str, Any]
) -> None:
    chosen = release_choices(records, classes, public)
    assert {choice.key: choice.value for choice in chosen} == expected


@pytest.mark.parametrize(("public", "epsilon"), [(99, 1.0), (100, 0.2)])
def test_a_map_needs_public_rows_and_little_noise(public: int, epsilon: float) -> None:
    keys = [choice.key for choice in release_choices(500, 2, public, epsilon)]
    assert keys == ["privacy.scorer", "privacy.embedding_dim"]


def test_names_of_sites() -> None:
    assert site_names(["Oslo", "St. Mary's", "St Mary s", "", "Ærø"]) == [
        "Oslo",
        "St-Mary-s",
        "St-Mary-s-2",
        "site",
        "r",
    ]
