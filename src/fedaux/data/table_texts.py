"""The values of a table as texts, before anyone knows what its columns are: of a file,
of several, or of a DataFrame. `data.table_choices` proposes a schema from them.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedaux.core.errors import Exit, FedauxError
from fedaux.data.arrays import require_file
from fedaux.data.lines import MAX_FIELD_SIZE, lines_of, split_line
from fedaux.data.parquet import is_parquet
from fedaux.data.table_encoding import to_number
from fedaux.data.table_files import (
    all_columns,
    cell_text,
    count_records,
    file_columns,
    nested_columns,
    require_lines,
)
from fedaux.data.table_schema import Encoding, FileMarks, TableHeader

DELIMITERS = (",", ";", "\t", "|")
LOOKED_AT = 200  # lines that tell a file's delimiter and decimal mark
NO_NAME = ""  # of the column that pandas' index becomes in a .csv


class TableError(FedauxError, ValueError):
    """A table for which no settings can be proposed. The message says why."""

    code = Exit.DATA


@dataclass(frozen=True)
class TextTable:
    """Values as texts, by column, and how they were written."""

    name: str  # for messages: the file, or the argument that it was
    columns: dict[str, list[str]]
    marks: FileMarks = field(default_factory=FileMarks)
    # whether values have types, so that it does not matter how they are written
    typed: bool = False
    short: int = 0  # lines with another number of values than the first
    nested: tuple[str, ...] = ()  # columns that are left out: values with parts

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


def read_texts(path: Path) -> TextTable:
    """Read a file whose first line names its columns, and find out how it is written;
    or a .parquet.
    """
    require_file(path, "your own table")
    if is_parquet(path):
        return _read_parquet(path)
    require_lines(path)
    csv.field_size_limit(MAX_FIELD_SIZE)
    encoding = _encoding(path)
    lines = [line for line in lines_of(path, encoding) if line.strip()]
    if len(lines) < 2:
        raise TableError(
            f"Cannot read {path}: it has no record. Write the names of the columns "
            "into the first line, and a record into each other line."
        )
    delimiter = max(DELIMITERS, key=lambda mark: len(split_line(lines[0], mark)))
    names = [name.strip() for name in split_line(lines[0], delimiter)]
    _require_names(str(path), names)
    rows = [split_line(line, delimiter) for line in lines[1:]]
    columns = {
        name: [row[place].strip() if place < len(row) else "" for row in rows]
        for place, name in enumerate(names)
    }
    short = sum(len(row) != len(names) for row in rows)
    marks = FileMarks(delimiter, _decimal(columns, delimiter), encoding)  # type: ignore[arg-type]
    return TextTable(str(path), columns, marks, short=short)


def _read_parquet(path: Path) -> TextTable:
    header = TableHeader()
    names = file_columns(path, header)
    _require_names(str(path), names)
    if not count_records(path, header, every_line=False):
        raise TableError(f"Cannot read {path}: it has no record. Write some into it.")
    columns = all_columns(path, header)
    nested = nested_columns(path)
    flat = {name: columns[name] for name in names if name not in nested}
    return TextTable(str(path), flat, typed=True, nested=tuple(nested))


def texts_of_frame(frame: Any, name: str) -> TextTable:
    """The values of a DataFrame as a .csv would have them (`tables.as_frame`)."""
    columns = {
        str(column): [cell_text(value, ".").strip() for value in frame[column]]
        for column in frame.columns
    }
    _require_names(name, [str(column) for column in frame.columns])
    if not len(frame):
        raise TableError(f"Cannot read {name}: it has no record. Give some.")
    return TextTable(name, columns, typed=True)


def joined_texts(tables: Sequence[TextTable]) -> TextTable:
    """The tables of several sites as one, with the columns that all of them have.

    Where they have different decimal marks, numbers get a point.
    """
    first = tables[0]
    if len(tables) == 1:
        return first
    shared = [
        name for name in first.columns if all(name in table.columns for table in tables)
    ]
    written = [table for table in tables if not table.typed]
    # of most files: the others are listed in the schema
    marks = first.marks
    if written:
        ((marks, _),) = Counter(table.marks for table in written).most_common(1)
    columns: dict[str, list[str]] = {name: [] for name in shared}
    for table in tables:
        for name in shared:
            columns[name] += with_decimal(table, name, marks.decimal)
    return TextTable(
        ", ".join(table.name for table in tables),
        columns,
        marks,
        typed=not written,
        short=sum(table.short for table in tables),
        nested=tuple({name: None for table in tables for name in table.nested}),
    )


def with_decimal(table: TextTable, name: str, decimal: str) -> list[str]:
    """The values of a column, whose numbers have this decimal mark."""
    values = table.columns[name]
    before = table.marks.decimal
    if before == decimal:
        return values
    return [
        value.replace(before, decimal)
        if before in value and to_number(value, before) == to_number(value, before)
        else value
        for value in values
    ]


def _require_names(where: str, names: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise TableError(
            f"Cannot read {where}: it has the column {twice[0]!r} twice. Give each "
            "column another name."
        )
    # the first one may be the index of a DataFrame, which pandas writes without a name
    if NO_NAME in names[1:]:
        raise TableError(
            f"Cannot read {where}: column {names.index(NO_NAME, 1) + 1} has no name. "
            "Give it one in the first line."
        )


def _encoding(path: Path) -> Encoding:
    """UTF-8, or where that cannot be, Windows' Western European."""
    for line in lines_of(path, "utf-8"):
        if "\ufffd" in line:
            return "cp1252"
    return "utf-8"


def _decimal(columns: dict[str, list[str]], delimiter: str) -> str:
    """A comma, if more values are numbers with it than with a point."""
    if delimiter == ",":
        return "."
    marks = Counter[str]()
    for values in columns.values():
        for value in values[:LOOKED_AT]:
            for mark in ",.":
                if mark in value and to_number(value, mark) == to_number(value, mark):
                    marks[mark] += 1
    return "," if marks[","] > marks["."] else "."
