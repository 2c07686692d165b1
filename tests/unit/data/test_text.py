from __future__ import annotations

import gzip
import json
import sys

import pytest

from fedaux.data.sources import open_source
from helpers.shared_data import ROOT, needs

ROWS = [("10", "ten, and\nmore"), ("9", "nine"), ("10", 'a "quote"'), ("-", "Größe")]


def write_csv(file, rows=ROWS):
    file.write_text(
        "label,text\n" + "".join(f'{label},"{text.replace(chr(34), chr(34) * 2)}"\n' for label, text in rows), "utf-8"
    )
    return file


def check(corpus):
    assert list(corpus.train.x) == [text for _, text in ROWS]
    assert corpus.classes == ("9", "10", "-")  # numbers by value, then names
    assert corpus.train.labels.tolist() == [1, 0, 1, 2]


def test_csv(tmp_path):
    check(open_source("csv", write_csv(tmp_path / "a.csv")))


def test_csv_compressed_and_renamed_columns(tmp_path):
    content = write_csv(tmp_path / "a.csv").read_text("utf-8").replace("label,text", "stars,body")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(content.encode()))
    check(open_source("csv", tmp_path / "a.csv.gz", text="body", label="stars"))


def test_csv_without_header_joins_columns(tmp_path):
    (tmp_path / "ag.csv").write_text('"3","Wall St.","Short sellers"\n"1","Peace","talks"\n')
    corpus = open_source("csv", tmp_path / "ag.csv", text=["title", "body"], columns=["label", "title", "body"])
    assert list(corpus.train.x) == ["Wall St. Short sellers", "Peace talks"]
    assert corpus.train.labels.tolist() == [1, 0]


def test_jsonl(tmp_path):
    lines = [json.dumps({"label": label, "text": text}) for label, text in ROWS]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n\n", "utf-8")
    check(open_source("jsonl", tmp_path / "a.jsonl"))


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"label": [r[0] for r in ROWS], "text": [r[1] for r in ROWS]}), tmp_path / "a.parquet")
    check(open_source("parquet", tmp_path / "a.parquet"))


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"pip install 'fedaux\[parquet\]'"):
        open_source("parquet", tmp_path / "a.parquet")


def test_unlabelled_text_and_views(tmp_path):
    corpus = open_source("csv", write_csv(tmp_path / "a.csv"), label="")
    assert corpus.train.y is None
    assert corpus.classes == ()
    assert corpus.train.take([3, 1]).gather().tolist() == ["Größe", "nine"]


def test_a_test_file_shares_the_numbers_of_the_train_file(tmp_path):
    train, test = write_csv(tmp_path / "a.csv"), write_csv(tmp_path / "b.csv", [("-", "x"), ("10", "y")])
    assert open_source("csv", train, test=str(test)).test.labels.tolist() == [2, 1]
    write_csv(test, [("8", "x")])
    with pytest.raises(ValueError, match=r"labels that .* has not: 8"):
        open_source("csv", train, test=str(test))


def test_errors_name_the_column_the_record_and_the_file(tmp_path):
    file = write_csv(tmp_path / "a.csv")
    with pytest.raises(ValueError, match=r"record 0: nothing in body, there is label, text; name the columns"):
        open_source("csv", file, text="body")
    file.write_text("label,text\n1,fine\n2\n")
    with pytest.raises(ValueError, match="record 1: nothing in text"):
        open_source("csv", file)
    with pytest.raises(FileNotFoundError, match=r"b\.csv is missing"):
        open_source("csv", tmp_path / "b.csv")


@needs("ag_news_train.csv.gz", "ag_news_test.csv.gz")
def test_real_news():
    corpus = open_source("csv", ROOT / "ag_news_train.csv.gz", test=str(ROOT / "ag_news_test.csv.gz"))
    assert (len(corpus.train), len(corpus.test), len(corpus.classes)) == (14_547, 7_600, 4)
    assert corpus.train.x[0].startswith("Mickelson not giving up")
    assert corpus.test.labels.max() == 3
