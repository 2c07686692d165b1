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

from fedaux.core.errors import MissingPackageError
from fedaux.data.arrays import require_file
from fedaux.data.labels import DeclaredClasses, factorize, name_or_nobody, to_name
from fedaux.data.records import Corpus, Records

TextRow = Mapping[str, Any]
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
    """A .csv or .csv.gz. `text` names one or several columns, `label=""` means no
    labels, `test` is a second file.

    `columns` names the columns of a file without a header, `person` the column of
    persons. With `declared` classes a record ends with its line, also within quotes.
    """

    def read(file: Path, table: _Table) -> Iterator[TextRow]:
        csv.field_size_limit(MAX_FIELD_SIZE)
        if table.declared:
            lines = _lines(file)
            names = columns or _fields(next(lines, ""))
            table.require_columns(file, names)
            yield from (dict(zip(names, _fields(line), strict=False)) for line in lines)
        else:
            with _open(file, "rt", encoding="utf-8", newline="") as stream:
                reader = csv.DictReader(stream, fieldnames=columns)
                table.require_columns(file, reader.fieldnames or ())
                yield from reader

    return _corpus(read, path, text, label, test, person, declared)


def _fields(line: str) -> list[str]:
    """Parse the fields of one line by itself: an open quote ends with the line, and a
    malformed line has no fields.
    """
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _read_jsonl(file: Path, table: _Table) -> Iterator[TextRow]:
    if table.declared:
        yield from map(_object, _lines(file))
    else:
        with _open(file, "rt", encoding="utf-8", newline="") as stream:
            yield from (json.loads(line) for line in stream if line.strip())


def _object(line: str) -> TextRow:
    """Parse one line of JSON by itself; an invalid line is an empty row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _lines(file: Path) -> Iterator[str]:
    """Yield the lines of a file, split at line feeds only and each decoded by
    itself.
    """
    with _open(file, "rb") as stream:
        for line in stream:
            decoded = line.decode("utf-8", "replace")
            row = decoded.removesuffix("\n").removesuffix("\r")
            yield row.removeprefix("\ufeff")


def _open(file: Path, mode: str, **options: Any) -> Any:
    if file.suffix == ".gz":
        return gzip.open(file, mode, **options)
    return file.open(mode, **options)


def _read_parquet(file: Path, table: _Table) -> Iterator[TextRow]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingPackageError(
            "reading parquet needs pyarrow: pip install 'fedaux[parquet]'"
        ) from error
    parquet = ParquetFile(file)
    table.require_columns(file, parquet.schema_arrow.names)
    if not table.declared:
        for batch in parquet.iter_batches():
            yield from batch.to_pylist()
        return
    for batch in parquet.iter_batches(columns=table.needed):
        columns = [map(_python_value, column) for column in batch.columns]
        yield from (
            dict(zip(batch.schema.names, row, strict=True))
            for row in zip(*columns, strict=True)
        )


def _python_value(scalar: Any) -> Any:
    """Convert one value by itself: invalid text is replaced, and a value that Python
    cannot represent is missing.
    """
    try:
        value = scalar.as_py()
    except UnicodeDecodeError:
        text = getattr(scalar, "value", scalar)  # that of a dictionary
        value = text.as_buffer().to_pybytes() if hasattr(text, "as_buffer") else None
    except Exception:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


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

    @property
    def needed(self) -> list[str]:
        return [*self.required, *([self.person] if self.person else [])]

    def require_columns(self, file: Path, present: Sequence[str]) -> None:
        """A missing column is an error also with declared classes: it depends on no
        record.
        """
        needed = self.needed if self.declared else [self.person] if self.person else []
        missing = [name for name in needed if name not in present]
        if missing:
            raise ValueError(
                f"{file} has no column {', '.join(missing)}, there is "
                f"{', '.join(map(str, present))}; name the columns "
                'in [data]: options = {text = "...", label = "..."}, person = "..."'
            )

    def require_values(self, file: Path, count: int, row: TextRow) -> None:
        missing = [name for name in self.required if to_name(row.get(name)) is None]
        if missing:
            raise ValueError(
                f"{file}, record {count}: nothing in {', '.join(missing)}, there is "
                f"{', '.join(map(str, row))}; name the columns with text=... and "
                "label=... (label='' for text without labels), or fix the record"
            )

    def text(self, row: TextRow) -> str:
        return valid_text(
            " ".join(name_or_nobody(row.get(name)) for name in self.texts)
        )


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
    table = _Table(
        (text,) if isinstance(text, str) else tuple(text),
        label,
        person,
        tuple(declared),
    )
    test = "" if table.declared else test  # sites have no test set
    files = [
        require_file(file, "your own text")
        for file in [path, *([Path(test).expanduser()] if test else [])]
    ]
    tables = [_columns(table, read(file, table), file) for file in files]
    names = table.declared or _sorted_names(tables[0][1])
    if test and (unknown := sorted(set(tables[-1][1]) - set(names))):
        raise ValueError(
            f"{test} has labels that {path} has not: {', '.join(unknown[:5])}; check "
            f"the column {table.label!r}"
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

    train, *rest = [to_records(*columns) for columns in tables]
    return Corpus(train, rest[0] if rest else None, tuple(names))


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
