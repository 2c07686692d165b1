"""Tables of texts in every format, and what one record of them may change: itself
alone.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedaux.data.sources import open_source
from helpers.own_records import (
    CLASSES,
    Row,
    groups,
    records,
    site,
    together,
    write_table,
)

ROWS = [("10", "ten, and\nmore"), ("9", "nine"), ("10", 'a "quote"'), ("-", "Größe")]
TABLES = ["csv", "jsonl", "parquet"]
OWNED = st.builds(
    Row,
    st.just("flu"),
    st.just("words"),
    st.sampled_from(["ann", "bob", "Ann", "7", " ", "", None]),
)
LABELS = st.sampled_from([*CLASSES, "aids", "0", "Flu", "", None])
TEXTS = st.none() | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
)
LABELLED = st.builds(Row, LABELS, TEXTS)


def write_csv(file, rows=ROWS):
    file.write_text(
        "label,text\n"
        + "".join(
            f'{label},"{text.replace(chr(34), chr(34) * 2)}"\n' for label, text in rows
        ),
        "utf-8",
    )
    return file


def check(corpus):
    assert list(corpus.train.x) == [text for _, text in ROWS]
    assert corpus.classes == ("9", "10", "-")  # numbers by value, then names
    assert corpus.train.labels.tolist() == [1, 0, 1, 2]


def test_tables_of_every_format(tmp_path):
    check(open_source("csv", write_csv(tmp_path / "a.csv")))
    renamed = (
        (tmp_path / "a.csv").read_text("utf-8").replace("label,text", "stars,body")
    )
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(renamed.encode()))
    check(open_source("csv", tmp_path / "a.csv.gz", text="body", label="stars"))
    lines = [json.dumps({"label": label, "text": text}) for label, text in ROWS]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n\n", "utf-8")
    check(open_source("jsonl", tmp_path / "a.jsonl"))
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"label": [r[0] for r in ROWS], "text": [r[1] for r in ROWS]}),
        tmp_path / "a.parquet",
    )
    check(open_source("parquet", tmp_path / "a.parquet"))


def test_csv_without_header_joins_columns(tmp_path):
    (tmp_path / "ag.csv").write_text(
        '"3","Wall St.","Short sellers"\n"1","Peace","talks"\n'
    )
    corpus = open_source(
        "csv",
        tmp_path / "ag.csv",
        text=["title", "body"],
        columns=["label", "title", "body"],
    )
    assert list(corpus.train.x) == ["Wall St. Short sellers", "Peace talks"]
    assert corpus.train.labels.tolist() == [1, 0]


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(ImportError, match=r"pip install -e '\.\[parquet\]'"):
        open_source("parquet", tmp_path / "a.parquet")


def test_unlabelled_text_and_views(tmp_path):
    corpus = open_source("csv", write_csv(tmp_path / "a.csv"), label="")
    assert corpus.train.y is None
    assert corpus.classes == ()
    assert corpus.train.take([3, 1]).gather().tolist() == ["Größe", "nine"]


def test_a_test_file_shares_the_numbers_of_the_train_file(tmp_path):
    train, test = (
        write_csv(tmp_path / "a.csv"),
        write_csv(tmp_path / "b.csv", [("-", "x"), ("10", "y")]),
    )
    assert open_source("csv", train, test=str(test)).test.labels.tolist() == [2, 1]
    write_csv(test, [("8", "x")])
    with pytest.raises(ValueError, match=r"labels that .* has not: 8"):
        open_source("csv", train, test=str(test))


def test_errors_name_the_column_the_record_and_the_file(tmp_path):
    file = write_csv(tmp_path / "a.csv")
    with pytest.raises(
        ValueError,
        match=r"record 0: nothing in body, there is label, text. Name the columns",
    ):
        open_source("csv", file, text="body")
    file.write_text("label,text\n1,fine\n2\n")
    with pytest.raises(ValueError, match="record 1: nothing in text"):
        open_source("csv", file)
    (tmp_path / "a.jsonl").write_text("{\n")
    with pytest.raises(ValueError, match="Expecting property name"):
        open_source("jsonl", tmp_path / "a.jsonl")


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(OWNED, min_size=1, max_size=8), other=OWNED, data=st.data())
def test_neighbouring_tables_keep_their_persons(
    kind: str, rows: list[Row], other: Row, data: st.DataObject
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    place, found = data.draw(st.integers(0, len(rows) - 1)), []
    for table in (rows, [*rows[:place], other, *rows[place + 1 :]]):
        with tempfile.TemporaryDirectory() as folder:
            found.append(
                records(
                    site(kind, write_table(kind, Path(folder), table), person="person")
                ).persons
            )
        assert found[-1].tolist() == groups([row.person or "" for row in table])
    assert together(found[0], place) == together(found[1], place)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_is_not_there(tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    file = write_table(kind, tmp_path, [Row("flu")])
    with pytest.raises(
        ValueError,
        match=r"has no column patient, there is label, text, person\. Name the columns",
    ):
        records(site(kind, file, person="patient"))
    with pytest.raises(ValueError, match="has no column diagnosis"):
        records(site(kind, file, options={"label": "diagnosis"}))
    with pytest.raises(ValueError, match="has no column patient"):
        open_source(kind, file, person="patient")


def number(label: str | None) -> int:
    return CLASSES.index(label) if label in CLASSES else -1


@pytest.mark.parametrize("kind", TABLES)
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(LABELLED, min_size=1, max_size=8), other=LABELLED, data=st.data())
def test_neighbouring_tables_differ_in_one_record(
    kind: str, rows: list[Row], other: Row, data: st.DataObject
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    place = data.draw(st.integers(0, len(rows) - 1))
    for table in (rows, [*rows[:place], other, *rows[place + 1 :]]):
        if kind == "csv":  # where a line feed ends the record
            table = [
                Row(*(field and field.replace("\n", " ") for field in row))
                for row in table
            ]
        with tempfile.TemporaryDirectory() as folder:
            found = records(site(kind, write_table(kind, Path(folder), table)))
        assert found.labels.tolist() == [number(row.label) for row in table]
        assert found.x.tolist() == [row.text or "" for row in table]


def test_at_a_site_every_line_is_a_record(tmp_path: Path) -> None:
    lines = [
        b"\xef\xbb\xbflabel,text",
        b'flu,"one',
        b'two",cold',
        b"",
        b"cold,one\rtwo",
        b'none,"one\rtwo"\r',
        b"flu,end",
    ]
    (tmp_path / "a.csv").write_bytes(b"\n".join(lines))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    for name in ("a.csv", "a.csv.gz"):
        found = records(site("csv", tmp_path / name))
        assert found.x.tolist() == ["one", "cold", "", "", "one\rtwo", "end"]
        assert found.labels.tolist() == [0, -1, -1, -1, 2, 0]
    (tmp_path / "a.jsonl").write_bytes(
        b'{"label":\r"flu"}\r\n\n\xef\xbb\xbf{"label": "cold"}\n'
    )
    assert records(site("jsonl", tmp_path / "a.jsonl")).labels.tolist() == [0, -1, 1]


def test_of_a_parquet_only_the_columns_that_are_needed_are_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    raw = pa.array([b"fine", b"\xff", None])
    broken = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    days = pa.array([0, 2**30, None], pa.int32()).cast(pa.date32())
    codes = broken.dictionary_encode()
    table = {
        "label": ["flu"] * 3,
        "text": broken,
        "when": days,
        "code": codes,
        "data": pa.array([b"x", b"\xff", None]),
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    assert records(site("parquet", tmp_path / "a.parquet")).x.tolist() == [
        "fine",
        "\ufffd",
        "",
    ]
    every = {"text": ["text", "when", "code", "data"]}
    found = records(site("parquet", tmp_path / "a.parquet", options=every))
    assert found.x.tolist() == [
        "fine 1970-01-01 fine x",
        "\ufffd  \ufffd \ufffd",
        "   ",
    ]
    assert (
        records(
            site("parquet", tmp_path / "a.parquet", options={"label": "code"})
        ).labels.tolist()
        == [-1] * 3
    )


def test_text_that_no_tokenizer_takes_is_mended(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"label": "flu", "text": "half \\ud83d"}\n')
    (found,) = records(site("jsonl", tmp_path / "a.jsonl")).x
    assert found == "half ?"


def test_labels_that_are_numbers_are_their_names_however_they_are_stored(
    tmp_path: Path,
) -> None:
    """A label that is missing makes a column of whole numbers one of floats."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for labels in ([1, 0, 2], [1.0, 0.0, None], [1.0, 0.0, float("nan")]):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        pq.write_table(pa.table({"label": labels, "text": ["a", "b", "c"]}), file)
        assert records(site("parquet", file, ("0", "1"))).labels.tolist() == [1, 0, -1]


def test_a_line_that_is_no_object_is_nobodys_in_particular(tmp_path: Path) -> None:
    file = write_table(
        "jsonl",
        tmp_path,
        [Row("flu", "a", "ann"), Row("flu", "b"), Row("cold", "c", "ann")],
    )
    with file.open("a") as stream:
        stream.write("{\n[1]\n")
    assert records(site("jsonl", file, person="person")).persons.tolist() == [
        0,
        1,
        0,
        1,
        1,
    ]
