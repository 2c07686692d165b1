"""A table in Parquet is the .csv that has the same values."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fedaux.core.errors import Exit, MissingPackageError
from fedaux.data.records import RecordsError, RecordSpec
from fedaux.data.sources import open_source
from fedaux.data.table_choices import TableError, propose
from fedaux.data.table_files import RECORDS_AT_ONCE, all_columns
from fedaux.data.table_schema import TableSchema
from fedaux.data.table_texts import read_texts
from fedaux.export.input_files import InputReader
from helpers.own_records import records, site

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SCHEMA = """
label = "diagnosis"
classes = ["healthy", "ill"]
site = "hospital"
decimal = ","
delimiter = ";"
confirmed = true
[columns]
age = {kind = "number", range = [0, 100], missing = true}
rate = {kind = "number", range = [0, 1]}
ward = {kind = "category", values = ["a", "3"]}
born = {kind = "category", values = ["1990-01-31"], missing = true}
smoker = {kind = "flag", values = ["false", "true"]}
"""
LINES = [
    "hospital;patient;age;rate;ward;born;smoker;diagnosis",
    "rome;1;50;0,25;a;1990-01-31;false;ill",
    "oslo;2;;1e-05;3;;true;healthy",
    "rome;1;100;0,5;other;1991-01-31;;ill",
]
COLUMNS: dict[str, Any] = {
    "hospital": pa.array(["rome", "oslo", "rome"]).dictionary_encode(),
    "patient": pa.array([1, 2, 1], pa.uint64()),
    "age": pa.array([50, None, 100], pa.int16()),
    "rate": pa.array([Decimal("0.25"), Decimal("0.00001"), Decimal("0.5")]),
    "ward": pa.array([" a", "3.0", "other"]),
    "born": pa.array([datetime.date(1990, 1, 31), None, datetime.date(1991, 1, 31)]),
    "smoker": pa.array([False, True, None]),
    "diagnosis": pa.array([b"ill", b"healthy", b"ill"]),
}


@pytest.fixture
def schema(tmp_path: Path) -> str:
    file = tmp_path / "schema.toml"
    file.write_text(SCHEMA)
    return str(file)


def write(folder: Path, columns: Any, name: str = "a.parquet") -> Path:
    file = folder / name
    pq.write_table(pa.table(columns), file, row_group_size=2)
    return file


def test_both_formats_become_the_same_records(tmp_path: Path, schema: str) -> None:
    text = tmp_path / "a.csv"
    text.write_text("\n".join(LINES))
    file = write(tmp_path, COLUMNS)
    written = open_source("table", text, schema=schema, person="patient")
    read = open_source("table", file, schema=schema, person="patient", test=str(file))
    assert read.train.x.tolist() == written.train.x.tolist()
    assert read.train.labels.tolist() == written.train.labels.tolist() == [1, 0, 1]
    assert read.train.persons.tolist() == written.train.persons.tolist() == [0, 1, 0]
    assert read.site is not None
    assert read.site.tolist() == [1, 0, 1]
    assert read.test is not None
    assert read.test.x.tobytes() == read.train.x.tobytes()
    declared = ("ill", "healthy")
    own = records(site("table", file, declared, options={"schema": schema}))
    assert own.labels.tolist() == [0, 1, 0]
    assert own.x.tobytes() == written.train.x.tobytes()


def test_a_model_reads_both_formats(tmp_path: Path, schema: str) -> None:
    file = write(tmp_path, COLUMNS)
    described = TableSchema.load(schema)
    numbers = RecordSpec("numbers", (10,))
    reader = InputReader(numbers, schema=described, id_column="patient")
    (block,) = reader.blocks([file])
    assert block[0] == ["1", "2", "1"]
    assert (
        block[1].tolist() == open_source("table", file, schema=schema).train.x.tolist()
    )
    kept = all_columns(file, described.header)
    assert list(kept) == list(COLUMNS)
    assert kept["born"] == ["1990-01-31", "", "1991-01-31"]
    assert kept["rate"] == ["0,25000", "0,00001", "0,50000"]


def test_long_files_and_wide_ones(tmp_path: Path, schema: str) -> None:
    """Columns that nothing needs are not looked at, also where their names are alike."""
    count = RECORDS_AT_ONCE + 3
    one = {name: column.cast(column.type)[:1] for name, column in COLUMNS.items()}
    columns = {name: pa.concat_arrays([column] * count) for name, column in one.items()}
    columns["age"] = pa.array([float(index % 101) for index in range(count)])
    columns["age.known"] = pa.array([True] * count)
    columns["parts"] = pa.array([{"age": -1}] * count)
    x = open_source("table", write(tmp_path, columns), schema=schema).train.x
    expected = [index % 101 / 50 - 1 for index in range(count)]
    assert x[:, 0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("public", ["public.csv", "public.parquet", ""])
def test_init_proposes_the_same_schema(tmp_path: Path, public: str) -> None:
    values: dict[str, list[Any]] = {
        "patient": [f"p{number}" for number in range(60)],
        "age": [20 + number * 0.5 for number in range(60)],
        "stage": [None if number % 7 == 0 else number % 3 for number in range(60)],
        "smoker": [number % 2 == 0 for number in range(60)],
        "born": [datetime.date(1950 + number, 1, 31) for number in range(60)],
        "diagnosis": ["ill", "well"] * 30,
    }
    lines = [";".join(values)]
    for row in zip(*values.values(), strict=True):
        texts = ["" if value is None else str(value) for value in row]
        lines.append(";".join(texts).replace(".", ","))
    for name in ("a.csv", "public.csv"):
        (tmp_path / name).write_text("\n".join(lines))
    columns = {name: pa.array(column) for name, column in values.items()}
    write(tmp_path, columns, "public.parquet")
    columns["scans"] = pa.array([[1.5, 2.5]] * 60)
    columns["visit"] = pa.array([{"at": "rome"}] * 60)
    file = write(tmp_path, columns)
    public_file = tmp_path / public if public else None
    text = propose(tmp_path / "a.csv", "diagnosis", public=public_file)
    found = propose(file, "diagnosis", public=public_file)
    assert dict(found.schema.columns) == dict(text.schema.columns)
    assert found.schema.header.classes == ("ill", "well")
    # by which the .csv among the files is read
    assert (found.schema.header.decimal == ",") is (public == "public.csv")
    nested = "nested: make a column of each part"
    assert dict(found.schema.dropped) == {
        **text.schema.dropped,
        "scans": nested,
        "visit": nested,
    }


def test_what_cannot_be_read_says_why(tmp_path: Path, schema: str) -> None:
    file = tmp_path / "a.parquet"
    file.write_text("\n".join(LINES))
    with pytest.raises(RecordsError, match=r"a\.parquet: it is not a Parquet file"):
        open_source("table", file, schema=schema)
    with pytest.raises(FileNotFoundError):
        open_source("table", tmp_path / "none.parquet", schema=schema)
    names = [*COLUMNS, "age"]
    arrays = [*COLUMNS.values(), COLUMNS["age"]]
    pq.write_table(pa.table(arrays, names=names), file)
    with pytest.raises(RecordsError, match="it has the column age twice"):
        open_source("table", file, schema=schema)
    with pytest.raises(TableError, match="it has the column 'age' twice"):
        read_texts(file)
    without = {name: values for name, values in COLUMNS.items() if name != "rate"}
    with pytest.raises(RecordsError, match="there is no column rate"):
        open_source("table", write(tmp_path, without), schema=schema)
    empty = {name: values[:0] for name, values in COLUMNS.items()}
    with pytest.raises(TableError, match="it has no record"):
        read_texts(write(tmp_path, empty))


@pytest.mark.parametrize("module", ["pyarrow", "pyarrow.parquet"])
def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, schema: str, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    file = write(tmp_path, COLUMNS)
    monkeypatch.setitem(sys.modules, module, None)
    for reading in (
        lambda: open_source("table", file, schema=schema),
        lambda: propose(file, "diagnosis"),
    ):
        with pytest.raises(MissingPackageError) as caught:
            reading()
        assert str(caught.value).startswith(f"Cannot read {file}: pyarrow is not")
        assert "pip install -e '.[tables]'" in str(caught.value)
        assert caught.value.code == Exit.MISSING
