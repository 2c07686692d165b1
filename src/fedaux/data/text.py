"""Text from tables: `x` is an array of `str`, labels are numbered in the order of their names (numbers by value)."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedaux.data.arrays import need
from fedaux.data.records import Corpus, Records
from fedaux.errors import MissingPackageError

Row = Mapping[str, Any]


def csv_text(
    path: Path,
    text: str | Sequence[str] = "text",
    label: str = "label",
    test: str = "",
    columns: Sequence[str] | None = None,
) -> Corpus:
    """A .csv or .csv.gz. `text` names one column or several to join, `label=""` means none; `test` is a second file.

    `columns` names the columns of a file without a header.
    """

    def read(file: Path) -> Iterator[Row]:
        with _open(file) as stream:
            yield from csv.DictReader(stream, fieldnames=columns)

    return _corpus(read, path, test, text, label)


def jsonl_text(path: Path, text: str | Sequence[str] = "text", label: str = "label", test: str = "") -> Corpus:
    """A .jsonl or .jsonl.gz, one object a line; options as for `csv_text`."""

    def read(file: Path) -> Iterator[Row]:
        with _open(file) as stream:
            yield from (json.loads(line) for line in stream if line.strip())

    return _corpus(read, path, test, text, label)


def parquet_text(path: Path, text: str | Sequence[str] = "text", label: str = "label", test: str = "") -> Corpus:
    """A .parquet file; options as for `csv_text`."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingPackageError("reading parquet needs pyarrow: pip install 'fedaux[parquet]'") from error

    def read(file: Path) -> Iterator[Row]:
        for batch in ParquetFile(file).iter_batches():
            yield from batch.to_pylist()

    return _corpus(read, path, test, text, label)


def _open(file: Path) -> TextIO:
    return (
        gzip.open(file, "rt", encoding="utf-8", newline="")
        if file.suffix == ".gz"
        else file.open(encoding="utf-8", newline="")
    )


def _corpus(
    read: Callable[[Path], Iterable[Row]], path: Path, test: str, text: str | Sequence[str], label: str
) -> Corpus:
    """Names become numbers by the train file; a test file must not bring new ones."""
    columns = [text] if isinstance(text, str) else list(text)
    files = [need(file, "your own text") for file in [path, *([Path(test).expanduser()] if test else [])]]
    tables = [_table(read(file), file, columns, label) for file in files]
    names = sorted(
        set(tables[0][1]), key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)
    )
    number = {name: index for index, name in enumerate(names)}
    if unknown := sorted(set(tables[-1][1]) - set(names)):
        raise ValueError(f"{test} has labels that {path} has not: {', '.join(unknown[:5])}; check the column {label!r}")
    records = [
        Records(np.array(x, dtype=object), np.array([number[name] for name in y], dtype=np.int64) if label else None)
        for x, y in tables
    ]
    return Corpus(records[0], records[1] if test else None, tuple(names))


def _table(rows: Iterable[Row], file: Path, columns: list[str], label: str) -> tuple[list[str], list[str]]:
    texts, labels = [], []
    for count, row in enumerate(rows):
        missing = [name for name in [*columns, *([label] if label else [])] if row.get(name) is None]
        if missing:
            raise ValueError(
                f"{file}, record {count}: nothing in {', '.join(missing)}, there is {', '.join(map(str, row))}; "
                "name the columns with text=... and label=... (label='' for text without labels), or mend the record"
            )
        texts.append(" ".join(str(row[name]) for name in columns))
        if label:
            labels.append(str(row[label]))
    return texts, labels
