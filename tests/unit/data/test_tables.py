"""Tables as a site, a simulation and a Python user read them."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.config.schema import Config
from fedaux.data.lines import count_lines, lines_of, split_line
from fedaux.data.records import UNDECLARED, RecordsError
from fedaux.data.sources import open_source
from fedaux.data.table_files import RECORDS_AT_ONCE, stripped
from fedaux.data.table_schema import SchemaError
from fedaux.data.tables import from_frame
from helpers.own_records import records, site

SCHEMA = """
label = "diagnosis"
classes = ["healthy", "ill"]
site = "hospital"
confirmed = true
[columns]
age = {kind = "number", range = [0, 100], missing = true}
ward = {kind = "category", values = ["a", "3"]}
smoker = {kind = "flag", values = ["no", "yes"]}
"""
HEADER = "hospital,patient,age,ward,smoker,diagnosis"
ROWS = ("rome,ann,50,a,no,ill", 'oslo,bob,"75",3.0,Yes,healthy', "rome,ann,NA,b,,ill")
ENCODED = [
    [0, 0, 1, 0, 0, 0],
    [0.5, 0, 0, 1, 0, 1],
    [0, 1, 0, 0, 1, 0.5],
]


@pytest.fixture
def schema(tmp_path: Path) -> str:
    file = tmp_path / "schema.toml"
    file.write_text(SCHEMA)
    return str(file)


def write(folder: Path, *rows: str, header: str = HEADER, name: str = "a.csv") -> Path:
    text = "\n".join([header, *rows, ""])
    file = folder / name
    content = text.encode()
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return file


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_table_of_several_sites(tmp_path: Path, schema: str, name: str) -> None:
    file = write(tmp_path, *ROWS, "", name=name)
    corpus = open_source("table", file, schema=schema, person="patient")
    assert corpus.train.x.tolist() == ENCODED
    assert corpus.train.x.dtype == np.float32
    assert corpus.classes == ("healthy", "ill")
    assert corpus.train.labels.tolist() == [1, 0, 1]
    assert corpus.train.persons.tolist() == [0, 1, 0]
    assert corpus.site is not None
    assert corpus.site.tolist() == [1, 0, 1]  # oslo, rome


def test_marks_of_another_country(tmp_path: Path, schema: str) -> None:
    Path(schema).write_text('delimiter = ";"\ndecimal = ","\n' + SCHEMA)
    file = tmp_path / "a.csv"
    file.write_bytes(
        b"\xef\xbb\xbfdiagnosis;age;ward;smoker;hospital\r\nill;12,5;a;no;rome\r\n"
    )
    corpus = open_source("table", file, schema=schema)
    assert corpus.train.x.tolist() == [[-0.75, 0, 1, 0, 0, 0]]


def test_public_records_and_a_test_file(tmp_path: Path, schema: str) -> None:
    public = write(tmp_path, "50,a,no", header="age,ward,smoker", name="public.csv")
    assert open_source("table", public, schema=schema, labels=False).train.y is None
    train = write(tmp_path, *ROWS)
    test = write(tmp_path, "rome,eve,50,a,no,healthy", name="test.csv")
    corpus = open_source("table", train, schema=schema, test=str(test))
    assert corpus.test is not None
    assert corpus.test.labels.tolist() == [0]


def test_a_site_reads_every_line(tmp_path: Path, schema: str) -> None:
    """Its column of sites is not looked at, and no line is refused."""
    lines = (*ROWS, "", "x", ",,,,,aids")
    file = write(tmp_path, *lines)
    read = records(site("table", file, ("ill", "healthy"), options={"schema": schema}))
    assert read.labels.tolist() == [0, 1, 0, *[UNDECLARED] * 3]
    assert read.x[:3].tolist() == ENCODED
    own = write(tmp_path, "50,a,no,ill", header="age,ward,smoker,diagnosis")
    assert len(records(site("table", own, ("ill",), options={"schema": schema}))) == 1


def test_a_site_reads_nothing_by_a_schema_of_private_records(
    tmp_path: Path, schema: str
) -> None:
    Path(schema).write_text(SCHEMA.replace("confirmed = true", ""))
    file = write(tmp_path, *ROWS)
    assert len(open_source("table", file, schema=schema).train) == 3
    with pytest.raises(RecordsError, match=r"Replace them .* write confirmed = true"):
        records(site("table", file, ("ill",), options={"schema": schema}))


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        (
            HEADER.replace("age", "Age"),
            ROWS,
            "there is no column age, which the schema",
        ),
        (f"{HEADER},age", ROWS, "it has the column age twice"),
        (HEADER.replace("diagnosis", "x"), ROWS, "there is no column diagnosis"),
        (HEADER, (*ROWS, "rome,eve,1,a,no,sick"), "record 4 has 'sick' as diagnosis"),
        (HEADER, (*ROWS, "rome,eve,1,a,no,"), "record 4 has '' as diagnosis"),
        (HEADER, (*ROWS, ",eve,1,a,no,ill"), "record 4 has no hospital"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, schema: str, header: str, rows: tuple[str, ...], said: str
) -> None:
    file = write(tmp_path, *rows, header=header)
    with pytest.raises(RecordsError, match=said) as caught:
        open_source("table", file, schema=schema)
    assert str(file) in str(caught.value)


def test_a_table_needs_its_schema(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"options = \{schema ="):
        open_source("table", write(tmp_path, *ROWS))


def test_blocks_do_not_matter(tmp_path: Path, schema: str) -> None:
    rows = [
        f"rome,p{index},{index % 101},a,no,ill" for index in range(RECORDS_AT_ONCE + 3)
    ]
    x = open_source("table", write(tmp_path, *rows), schema=schema).train.x
    expected = [index % 101 / 50 - 1 for index in range(RECORDS_AT_ONCE + 3)]
    np.testing.assert_allclose(x[:, 0], expected, atol=1e-6)


def test_a_frame_is_the_file_that_it_was_read_from(tmp_path: Path, schema: str) -> None:
    pandas = pytest.importorskip("pandas")
    file = write(tmp_path, *ROWS, "oslo,eve,33.5,3,no,ill")
    read = open_source("table", file, schema=schema, person="patient")
    for options in ({}, {"dtype_backend": "numpy_nullable"}):
        frame = pandas.read_csv(file, **options)
        corpus = from_frame(frame, schema, person="patient")
        assert corpus.train.x.tolist() == read.train.x.tolist()
        assert corpus.train.labels.tolist() == read.train.labels.tolist()
        assert corpus.train.persons.tolist() == read.train.persons.tolist()
        assert corpus.site is not None
        assert read.site is not None
        assert corpus.site.tolist() == read.site.tolist()
        assert corpus.classes == read.classes


def test_rows_of_a_schema_are_nobodys(schema: str) -> None:
    first, again = (open_source("schema", schema, rows=500).train.x for _ in range(2))
    assert first.shape == (500, 6)
    assert first.tobytes() == again.tobytes()
    assert abs(first[:, 0].mean()) < 0.1  # ages are anywhere in their range
    assert 0.05 < first[:, 1].mean() < 0.15  # and some are missing
    assert first[:, 2:4].sum(axis=1).tolist() == [1.0] * 500  # of the named values


def test_a_schema_lies_beside_the_settings(
    tmp_path: Path, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *ROWS)
    settings = tmp_path / "table.toml"
    settings.write_text(
        '[data]\nsource = "table"\npath = "a.csv"\noptions = {schema = "schema.toml"}'
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    options: dict[str, Any] = dict(Config.load(settings).data.options)
    assert options["schema"] == schema


@given(st.text(alphabet='a,;" \r\n\t\x00\u2028é', max_size=12))
def test_a_line_without_quotes_has_the_fields_that_a_parser_finds(line: str) -> None:
    for delimiter in ",;":
        try:
            expected = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:
            expected = []
        assert split_line(line, delimiter) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_lines_are_counted_as_they_are_read(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "a.csv"
    mark = b"\xef\xbb\xbf"
    for content in (
        b"",
        b"a\n\n\r\nb,c,d,e,f\r\n \n\r",
        mark + b"\n" + mark + b"\r\n" + mark + b"abcdefg\n" + mark,
        b"\r\r\n\xff\n\n",
    ):
        file.write_bytes(content)
        lines = list(lines_of(file, encoding))
        assert count_lines(file, encoding) == len(lines)
        assert count_lines(file, encoding, empty=False) == len(
            list(filter(None, lines))
        )


def test_spaces_around_values_are_left_out() -> None:
    for texts in (["a", "b c"], ["a", " b"], ["a\u00a0", ""], [], ["", ""], ["\n"]):
        assert list(stripped(texts)) == [text.strip() for text in texts]
