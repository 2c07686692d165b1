"""What a table's columns hold, before anyone knows what they are: of a file, of several,
or of a DataFrame. `data.table_choices` proposes a schema from this.

There are facts of each column over all records, and the values of some records, so that
memory does not grow with the file. Ends of a range, missing values, names and constants
come from all records. Quantiles, intervals and identifiers come from `SAMPLED` records,
evenly spread over the file; a file of fewer is looked at as a whole.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.core.errors import Exit, FedauxError
from fedaux.data.arrays import require_file
from fedaux.data.lines import MAX_FIELD_SIZE, lines_of, split_line
from fedaux.data.parquet import is_parquet
from fedaux.data.table_encoding import same_name, to_number, to_numbers
from fedaux.data.table_files import (
    RECORDS_AT_ONCE,
    TextColumns,
    cell_text,
    count_records,
    file_columns,
    nested_columns,
    read_blocks,
    require_lines,
    stripped,
)
from fedaux.data.table_schema import MISSING_VALUES, Encoding, FileMarks, TableHeader

DELIMITERS = (",", ";", "\t", "|")
LOOKED_AT = 200  # lines that tell a file's delimiter and decimal mark
NO_NAME = ""  # of the column that pandas' index becomes in a .csv
SAMPLED = 20_000  # records whose values are kept
MOST_NAMES = 1_000  # different values of a column that are counted
_MISSING = frozenset(MISSING_VALUES)


class TableError(FedauxError, ValueError):
    """A table for which no settings can be proposed. The message says why."""

    code = Exit.DATA


@dataclass
class ColumnTexts:
    """The values of a column.

    Attributes:
        sample: The values of some records, in the order of the file.
        counts: How often each value occurs, until there are more than `MOST_NAMES`.
        counted: Whether these are all values.
        present: How many records have a value.
        missing: How many have none.
        first_missing: The first of these, from 0.
        least: The least number.
        largest: The largest number.
        is_number: Whether all values are finite numbers.
        is_whole: Whether all of them are whole.
        sites: The first two sites that have a value, if a column tells sites apart.
    """

    sample: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    counted: bool = True
    present: int = 0
    missing: int = 0
    first_missing: int = -1
    least: float = math.inf
    largest: float = -math.inf
    is_number: bool = True
    is_whole: bool = True
    sites: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, values: Sequence[str], decimal: str) -> ColumnTexts:
        """A column of which these are all values."""
        column = cls(sample=list(values))
        column.add(values, 0, decimal)
        return column

    @classmethod
    def joined(cls, parts: Sequence[ColumnTexts], share: float) -> ColumnTexts:
        """A column of several tables, with the values of this share of each one's
        records. Names in all parts have the same decimal mark.
        """
        column = cls()
        for part in parts:
            if part.missing and not column.missing:
                column.first_missing = column.records + part.first_missing
            column.present += part.present
            column.missing += part.missing
            column.counts += part.counts
            column.counted = column.counted and part.counted
            column.least = min(column.least, part.least)
            column.largest = max(column.largest, part.largest)
            column.is_number = column.is_number and part.is_number
            column.is_whole = column.is_whole and part.is_whole
            column.sample += part.some(share)
        return column

    def some(self, share: float) -> list[str]:
        """The values of this share of all records, evenly spread over `sample`."""
        count = min(max(round(share * self.records), 1), len(self.sample))
        places = np.linspace(0, len(self.sample), count, endpoint=False, dtype=int)
        return [self.sample[place] for place in places]

    @property
    def records(self) -> int:
        return self.present + self.missing

    def add(
        self, values: Sequence[str], first: int, decimal: str, limit: float = MOST_NAMES
    ) -> None:
        """Look at the values of the records from `first` on, without keeping them."""
        present = [value for value in values if value not in _MISSING]
        self.present += len(present)
        if len(present) < len(values):
            if not self.missing:
                absent = (value in _MISSING for value in values)
                self.first_missing = first + list(absent).index(True)
            self.missing += len(values) - len(present)
        if self.counted:
            for value, count in Counter(present).items():
                self.counts[same_name(value)] += count
                if len(self.counts) > limit:
                    self.counted = False
                    break
        if self.is_number and present:
            self._add_numbers(present, decimal)

    def _add_numbers(self, present: Sequence[str], decimal: str) -> None:
        numbers = to_numbers(present, frozenset(), decimal)
        if not np.isfinite(numbers).all():
            self.is_number = False
            return
        self.least = min(self.least, float(numbers.min()))
        self.largest = max(self.largest, float(numbers.max()))
        if self.is_whole:
            self.is_whole = bool((numbers == np.rint(numbers)).all())

    @property
    def values(self) -> list[str]:
        """Those of the sample. If all of it is missing, some of the others."""
        present = [value for value in self.sample if value not in _MISSING]
        return present or list(self.counts)

    @property
    def distinct(self) -> str:
        """How many different values there are, for readers."""
        if self.counted:
            return f"{len(self.counts)}"
        return f"more than {MOST_NAMES:,}"


@dataclass(frozen=True)
class TextTable:
    """A table's columns, and how they were written."""

    name: str  # for messages: the file, or the argument that it was
    records: int
    columns: dict[str, ColumnTexts]
    marks: FileMarks = field(default_factory=FileMarks)
    # whether values have types, so that it does not matter how they are written
    typed: bool = False
    short: int = 0  # lines with another number of values than the first
    nested: tuple[str, ...] = ()  # columns that are left out: values with parts

    def __len__(self) -> int:
        return self.records


def read_texts(path: Path, label: str = "", site: str = "") -> TextTable:
    """Read a file whose first line names its columns, and find out how it is written;
    or a .parquet. All values of the columns `label` and `site` are counted.
    """
    require_file(path, "your own table")
    if is_parquet(path):
        return _read_parquet(path, label, site)
    require_lines(path)
    csv.field_size_limit(MAX_FIELD_SIZE)
    encoding, count = _scan(path)
    if count < 2:
        raise TableError(
            f"Cannot read {path}: it has no record. Write the names of the columns "
            "into the first line, and a record into each other line."
        )
    lines = (line for line in lines_of(path, encoding) if line.strip())
    first = next(lines)
    delimiter = max(DELIMITERS, key=lambda mark: len(split_line(first, mark)))
    names = [name.strip() for name in split_line(first, delimiter)]
    _require_names(str(path), names)
    head = list(islice(lines, LOOKED_AT))
    decimal = _decimal([split_line(line, delimiter) for line in head], delimiter)
    short = 0

    def blocks() -> Iterator[TextColumns]:
        nonlocal short
        every_line = chain(head, lines)
        while block := list(islice(every_line, RECORDS_AT_ONCE)):
            rows = [split_line(line, delimiter) for line in block]
            uneven = [row for row in rows if len(row) != len(names)]
            short += len(uneven)
            if uneven:
                rows = [[*row, *[""] * len(names)][: len(names)] for row in rows]
            yield [list(column) for column in zip(*rows, strict=True)]

    columns = _look_at(blocks(), names, count - 1, decimal, label, site)
    marks = FileMarks(delimiter, decimal, encoding)  # type: ignore[arg-type]
    return TextTable(str(path), count - 1, columns, marks, short=short)


def _read_parquet(path: Path, label: str, site: str) -> TextTable:
    header = TableHeader()
    names = file_columns(path, header)
    _require_names(str(path), names)
    count = count_records(path, header, every_line=False)
    if not count:
        raise TableError(f"Cannot read {path}: it has no record. Write some into it.")
    blocks = read_blocks(path, header, range(len(names)))
    columns = _look_at(blocks, names, count, header.decimal, label, site)
    nested = nested_columns(path)
    flat = {name: columns[name] for name in names if name not in nested}
    return TextTable(str(path), count, flat, typed=True, nested=tuple(nested))


def texts_of_frame(frame: Any, name: str, label: str = "", site: str = "") -> TextTable:
    """The columns of a DataFrame as a .csv would have them (`tables.as_frame`). All
    values of the columns `label` and `site` are counted.
    """
    names = [str(column) for column in frame.columns]
    _require_names(name, names)
    count = len(frame)
    if not count:
        raise TableError(f"Cannot read {name}: it has no record. Give some.")
    whole = [list(frame[column]) for column in frame.columns]

    def blocks() -> Iterator[TextColumns]:
        for start in range(0, count, RECORDS_AT_ONCE):
            rows = slice(start, start + RECORDS_AT_ONCE)
            yield [
                [cell_text(value, ".") for value in values[rows]] for values in whole
            ]

    columns = _look_at(blocks(), names, count, ".", label, site)
    return TextTable(name, count, columns, typed=True)


def column_of_frame(frame: Any, name: str) -> list[str]:
    """The values of a column of a DataFrame, as texts."""
    return [cell_text(value, ".").strip() for value in frame[name]]


def joined_texts(tables: Sequence[TextTable]) -> TextTable:
    """The tables of several sites as one, with the columns that all of them have.

    Where they have different decimal marks, numbers get that of most files.
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
    records = sum(map(len, tables))
    columns: dict[str, ColumnTexts] = {}
    for name in shared:
        parts = [with_decimal(table, name, marks.decimal) for table in tables]
        kept = [len(part.sample) / part.records for part in parts]
        share = min(SAMPLED / records, *kept)
        columns[name] = ColumnTexts.joined(parts, share)
    return TextTable(
        ", ".join(table.name for table in tables),
        records,
        columns,
        marks,
        typed=not written,
        short=sum(table.short for table in tables),
        nested=tuple({name: None for table in tables for name in table.nested}),
    )


def with_decimal(table: TextTable, name: str, decimal: str) -> ColumnTexts:
    """A column, whose numbers have this decimal mark. In a column that is not all
    numbers, values stay as they are, because a file is read as it is written.
    """
    column = table.columns[name]
    before = table.marks.decimal
    if before == decimal or not column.is_number:
        return column

    def changed(value: str) -> str:
        if before in value and to_number(value, before) == to_number(value, before):
            return value.replace(before, decimal)
        return value

    counts = Counter[str]()
    for value, count in column.counts.items():
        counts[changed(value)] += count
    return replace(column, sample=list(map(changed, column.sample)), counts=counts)


def _look_at(
    blocks: Iterable[TextColumns],
    names: Sequence[str],
    count: int,
    decimal: str,
    label: str,
    site: str,
) -> dict[str, ColumnTexts]:
    """Look at the columns of `count` records that come in blocks."""
    columns = {name: ColumnTexts() for name in names}
    named = {label, site} - {NO_NAME}
    every = -(-count // SAMPLED)  # which records are kept
    start = 0
    for block in blocks:
        texts = [stripped(values) for values in block]
        sites: list[str] = []
        if site and site in columns:
            sites = [same_name(value) for value in texts[names.index(site)]]
        for (name, column), values in zip(columns.items(), texts, strict=True):
            limit = math.inf if name in named else MOST_NAMES
            column.add(values, start, decimal, limit)
            column.sample += values[-start % every :: every]
            if sites and len(column.sites) < 2:
                filled = zip(sites, values, strict=True)
                column.sites |= {at for at, value in filled if value not in _MISSING}
        start += len(texts[0])
    return columns


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


def _scan(path: Path) -> tuple[Encoding, int]:
    """(the encoding, how many lines are not blank). The encoding is UTF-8, or where
    that cannot be, Windows' Western European.
    """
    encoding: Encoding = "utf-8"
    count = 0
    for line in lines_of(path, "utf-8"):
        if "\ufffd" in line:
            encoding = "cp1252"
        if line.strip():
            count += 1
    return encoding, count


def _decimal(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    """A comma, if more values are numbers with it than with a point."""
    if delimiter == ",":
        return "."
    marks = Counter[str]()
    for value in map(str.strip, chain.from_iterable(rows)):
        for mark in ",.":
            if mark in value and to_number(value, mark) == to_number(value, mark):
                marks[mark] += 1
    return "," if marks[","] > marks["."] else "."
