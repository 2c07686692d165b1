"""Text sources: tables in CSV, JSON lines or Parquet. Labels are numbered in the order of their names, numeric
ones by value.

With `declared` classes a label is its position among them, and no row is rejected or affects another: a missing text is
empty, a missing or undeclared label is `UNDECLARED`.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedaux.core.errors import MissingPackageError
from fedaux.data.arrays import require_file
from fedaux.data.persons import factorize, to_name
from fedaux.data.records import UNDECLARED, Corpus, Records

Row = Mapping[str, Any]
MAX_FIELD_SIZE = 2**31 - 1  # characters; the csv module's default is 131,072


def csv_text(
    path: Path,
    text: str | Sequence[str] = "text",
    label: str = "label",
    test: str = "",
    columns: Sequence[str] | None = None,
    person: str = "",
    declared: Sequence[str] = (),
) -> Corpus:
    """A .csv or .csv.gz. `text` names one or several columns, `label=""` means no labels, `test` is a second file.

    `columns` names the columns of a file without a header, `person` the column of persons.
    """

    def read(file: Path, table: _Table) -> Iterator[Row]:
        csv.field_size_limit(MAX_FIELD_SIZE)
        with _open(file, table) as stream:
            reader = csv.DictReader(stream, fieldnames=columns)
            table.require_columns(file, reader.fieldnames or ())
            yield from reader

    return _corpus(read, path, text, label, test, person, declared)


def _read_jsonl(file: Path, table: _Table) -> Iterator[Row]:
    with _open(file, table) as stream:
        yield from (_parse_line(line, table) for line in stream if line.strip())


def _read_parquet(file: Path, table: _Table) -> Iterator[Row]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingPackageError("reading parquet needs pyarrow: pip install 'fedaux[parquet]'") from error
    parquet = ParquetFile(file)
    table.require_columns(file, parquet.schema_arrow.names)
    for batch in parquet.iter_batches():
        yield from batch.to_pylist()


@dataclass(frozen=True)
class _Table:
    """The columns to read, and the declared classes."""

    texts: tuple[str, ...]
    label: str
    person: str
    declared: tuple[str, ...]

    @property
    def required(self) -> list[str]:
        return [*self.texts, *([self.label] if self.label else [])]

    def require_columns(self, file: Path, present: Sequence[str]) -> None:
        """A missing column is an error also with declared classes: it depends on no record."""
        needed = [*(self.required if self.declared else []), *([self.person] if self.person else [])]
        missing = [name for name in needed if name not in present]
        if missing:
            raise ValueError(
                f"{file} has no column {', '.join(missing)}, there is {', '.join(map(str, present))}; name the columns "
                'in [data]: options = {text = "...", label = "..."}, person = "..."'
            )

    def require_values(self, file: Path, count: int, row: Row) -> None:
        missing = [name for name in self.required if to_name(row.get(name)) is None]
        if missing:
            raise ValueError(
                f"{file}, record {count}: nothing in {', '.join(missing)}, there is {', '.join(map(str, row))}; "
                "name the columns with text=... and label=... (label='' for text without labels), or fix the record"
            )

    def text(self, row: Row) -> str:
        joined = " ".join(to_name(row.get(name)) or "" for name in self.texts)
        return joined.encode("utf-8", "replace").decode("utf-8")  # tokenizers reject lone surrogates


def _open(file: Path, table: _Table) -> TextIO:
    errors = "replace" if table.declared else "strict"
    return (
        gzip.open(file, "rt", encoding="utf-8", errors=errors, newline="")
        if file.suffix == ".gz"
        else file.open(encoding="utf-8", errors=errors, newline="")
    )


def _parse_line(line: str, table: _Table) -> Row:
    """A JSON object; with declared classes, an invalid line is an empty row."""
    if not table.declared:
        return json.loads(line)  # type: ignore[no-any-return]
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _corpus(
    read: Callable[[Path, _Table], Iterable[Row]],
    path: Path,
    text: str | Sequence[str] = "text",
    label: str = "label",
    test: str = "",
    person: str = "",
    declared: Sequence[str] = (),
) -> Corpus:
    """Without declared classes, the train file defines the labels, and a test file must not add any."""
    table = _Table((text,) if isinstance(text, str) else tuple(text), label, person, tuple(declared))
    test = "" if table.declared else test  # sites have no test set
    files = [require_file(file, "your own text") for file in [path, *([Path(test).expanduser()] if test else [])]]
    tables = [_columns(table, read(file, table), file) for file in files]
    names = table.declared or _sorted_names(tables[0][1])
    if test and (unknown := sorted(set(tables[-1][1]) - set(names))):
        raise ValueError(
            f"{test} has labels that {path} has not: {', '.join(unknown[:5])}; check the column {table.label!r}"
        )
    position = {name: index for index, name in enumerate(names)}

    def to_records(x: list[str], y: list[str], persons: list[str]) -> Records:
        labels = np.array([position.get(name, UNDECLARED) for name in y], dtype=np.int64) if table.label else None
        return Records(np.array(x, dtype=object), labels, person=factorize(persons) if table.person else None)

    train, *rest = [to_records(*columns) for columns in tables]
    return Corpus(train, rest[0] if rest else None, tuple(names))


jsonl_text = partial(_corpus, _read_jsonl)  # .jsonl or .jsonl.gz, one object per line; options as for `csv_text`
parquet_text = partial(_corpus, _read_parquet)  # .parquet; options as for `csv_text`


def _columns(table: _Table, rows: Iterable[Row], file: Path) -> tuple[list[str], list[str], list[str]]:
    """(texts, labels, persons)"""
    texts, labels, persons = [], [], []
    for count, row in enumerate(rows):
        if not table.declared:
            table.require_values(file, count, row)
        texts.append(table.text(row))
        if table.label:
            labels.append(to_name(row.get(table.label)) or "")
        if table.person:
            persons.append(to_name(row.get(table.person)) or "")
    return texts, labels, persons


def _sorted_names(labels: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        sorted(set(labels), key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
    )
