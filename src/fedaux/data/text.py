"""Text sources: tables in CSV, JSON lines or Parquet. Labels are numbered in the order
of their names, numeric ones by value.

With `declared` classes a label is its position among them, and no row is rejected or
affects another: a missing text is empty, a missing or undeclared label is `UNDECLARED`.
Every line of a .csv or .jsonl is one record then, an empty or malformed one as well,
and ends at the next line feed: texts with line breaks belong into .jsonl, which escapes
them, or .parquet.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.data.arrays import require_file
from fedaux.data.labels import DeclaredClasses, factorize, name_or_nobody, to_name
from fedaux.data.lines import MAX_FIELD_SIZE, lines_of, split_line
from fedaux.data.parquet import open_parquet, python_value
from fedaux.data.records import Corpus, Records

# what to do where numbers and categories were taken for texts
OF_A_TABLE = (
    "Read a table of numbers and categories by `fedaux init table`, or in Python with "
    "label='…', its column of the class."
)

TextRow = Mapping[str, Any]


def csv_text(
    path: Path,
    text: str | Sequence[str] = "text",
    label: str = "label",
    test: str = "",
    columns: Sequence[str] | None = None,
    person: str = "",
    declared: Sequence[str] = (),
) -> Corpus:
    """A .csv or .csv.gz. `text` names one or several columns, `label=""` means no
    labels, `test` is a second file.

    `columns` names the columns of a file without a header, `person` the column of
    persons. With `declared` classes a record ends with its line, also within quotes.
    """

    def read(file: Path, table: _Table) -> Iterator[TextRow]:
        csv.field_size_limit(MAX_FIELD_SIZE)
        lines = table.lines(file)
        rows: Iterator[list[str]] = csv.reader(lines)
        if table.declared:
            rows = map(split_line, lines)
        names = columns or next(rows, [])
        table.require_columns(file, names)
        for fields in rows:
            if fields or table.declared:  # an empty line is a record of a site
                yield dict.fromkeys(names) | dict(zip(names, fields, strict=False))

    return _corpus(read, path, text, label, test, person, declared)


def _read_jsonl(file: Path, table: _Table) -> Iterator[TextRow]:
    lines = table.lines(file)
    if table.declared:
        return map(_object, lines)
    return map(json.loads, filter(str.strip, lines))


def _object(line: str) -> TextRow:
    """Parse one line of JSON separately. An invalid line is an empty row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _read_parquet(file: Path, table: _Table) -> Iterator[TextRow]:
    parquet = open_parquet(file, "parquet")
    table.require_columns(file, parquet.schema_arrow.names)
    names = table.needed if table.declared else None  # the others are not looked at
    for batch in parquet.iter_batches(columns=names):
        if table.declared:
            columns = [map(python_value, column) for column in batch.columns]
        else:
            columns = [column.to_pylist() for column in batch.columns]
        for row in zip(*columns, strict=True):
            yield dict(zip(batch.schema.names, row, strict=True))


@dataclass(frozen=True)
class _Table:
    """The columns to read, and the declared classes, with which each row is read by
    itself.
    """

    texts: tuple[str, ...]
    label: str
    person: str
    declared: tuple[str, ...]

    @property
    def required(self) -> list[str]:
        return [*self.texts, *filter(None, [self.label])]

    @property
    def needed(self) -> list[str]:
        return [*self.required, *filter(None, [self.person])]

    def lines(self, file: Path) -> Iterator[str]:
        """The lines of a file. With declared classes they end at line feeds only, and
        each is decoded separately.
        """
        if self.declared:
            yield from lines_of(file)
            return
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8", newline="") as stream:
            yield from stream

    def require_columns(self, file: Path, present: Sequence[str]) -> None:
        """A missing column is an error also with declared classes: it depends on no
        record.
        """
        needed = self.needed if self.declared else list(filter(None, [self.person]))
        missing = [name for name in needed if name not in present]
        if missing:
            raise ValueError(
                f"Cannot read the data: {file} has no column {', '.join(missing)}, "
                f"there is {', '.join(map(str, present))}. Name the columns in [data]: "
                'options = {text = "...", label = "..."}, person = "...". '
                f"{OF_A_TABLE}"
            )

    def require_values(self, file: Path, count: int, row: TextRow) -> None:
        missing = [name for name in self.required if to_name(row.get(name)) is None]
        if missing:
            raise ValueError(
                f"Cannot read the data: {file}, record {count}: nothing in "
                f"{', '.join(missing)}, there is {', '.join(map(str, row))}. Name the "
                "columns with text=... and label=... (label='' for text without "
                f"labels), or fix the record. {OF_A_TABLE}"
            )

    def text(self, row: TextRow) -> str:
        parts = [name_or_nobody(row.get(name)) for name in self.texts]
        return valid_text(" ".join(parts))


def valid_text(text: str) -> str:
    """Without lone surrogates, which tokenizers reject."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _corpus(
    read: Callable[[Path, _Table], Iterable[TextRow]],
    path: Path,
    text: str | Sequence[str] = "text",
    label: str = "label",
    test: str = "",
    person: str = "",
    declared: Sequence[str] = (),
) -> Corpus:
    """Without declared classes, the train file defines the labels, and a test file must
    not add any.
    """
    texts = (text,) if isinstance(text, str) else tuple(text)
    table = _Table(texts, label, person, tuple(declared))
    paths = [path]
    if test and not declared:  # sites have no test set
        paths.append(Path(test).expanduser())
    files = [require_file(file, "your own text") for file in paths]
    tables = [_columns(table, read(file, table), file) for file in files]
    names = table.declared or _sorted_names(tables[0][1])
    unknown = sorted(set(tables[-1][1]) - set(names))
    if unknown and not declared:
        raise ValueError(
            f"Cannot read the test data: {test} has labels that {path} has not: "
            f"{', '.join(unknown[:5])}. Check the column {table.label!r}."
        )
    classes = DeclaredClasses.of(names)

    def to_records(x: list[str], y: list[str], persons: list[str]) -> Records:
        records = Records(np.array(x, dtype=object))
        if table.label:
            labels = [classes.by_name(name) for name in y]
            records = replace(records, y=np.array(labels, dtype=np.int64))
        if table.person:
            records = replace(records, person=factorize(persons))
        return records

    train, *tested = [to_records(*columns) for columns in tables]
    return Corpus(train, tested[0] if tested else None, tuple(names))


# .jsonl or .jsonl.gz, one object per line; options as for `csv_text`
jsonl_text = partial(_corpus, _read_jsonl)
parquet_text = partial(_corpus, _read_parquet)  # .parquet; options as for `csv_text`


def _columns(
    table: _Table, rows: Iterable[TextRow], file: Path
) -> tuple[list[str], list[str], list[str]]:
    """(texts, labels, persons)"""
    texts = []
    labels = []
    persons = []
    for count, row in enumerate(rows):
        if not table.declared:
            table.require_values(file, count, row)
        texts.append(table.text(row))
        if table.label:
            labels.append(name_or_nobody(row.get(table.label)))
        if table.person:
            persons.append(name_or_nobody(row.get(table.person)))
    return texts, labels, persons


def _sorted_names(labels: Iterable[str]) -> tuple[str, ...]:
    """Numbers by their value, then all other names."""

    def order(name: str) -> tuple[bool, int, str]:
        number = int(name) if name.isdecimal() else 0
        return not name.isdecimal(), number, name

    return tuple(sorted(set(labels), key=order))
