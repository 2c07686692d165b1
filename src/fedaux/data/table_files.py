"""A table's file, .csv or .parquet, as columns of texts: as they are in a .csv, and of a
.parquet as a .csv of the same schema would have them. Everything after this is the same
for both.

A line of a .csv is a record, also within quotes, and is decoded and divided by itself.
A value of a .parquet is converted by itself, and only the columns that are needed are
read.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.data.arrays import require_file
from fedaux.data.labels import name_or_nobody
from fedaux.data.lines import (
    MAX_FIELD_SIZE,
    count_lines,
    is_utf_16,
    lines_of,
    split_line,
)
from fedaux.data.parquet import is_parquet, open_parquet, python_value
from fedaux.data.records import RecordsError
from fedaux.data.table_schema import TableHeader

RECORDS_AT_ONCE = 4096  # records
_EXTRA = "tables"  # what installs pyarrow

# the texts of some records, by column
TextColumns = Sequence[Sequence[str]]


def file_columns(file: Path, header: TableHeader) -> list[str]:
    """The names of a file's columns, in its order."""
    require_file(file, "your own table")
    if is_parquet(file):
        return [str(name) for name in open_parquet(file, _EXTRA).schema_arrow.names]
    csv.field_size_limit(MAX_FIELD_SIZE)
    require_lines(file)
    first = next(lines_of(file, header.encoding))
    return [name.strip() for name in split_line(first, header.delimiter)]


def require_lines(file: Path) -> None:
    """Raise an error unless a file has a first line, in an encoding of single bytes."""
    if is_utf_16(file):
        raise RecordsError(
            f"Cannot read {file}: it is written in UTF-16. Save it as UTF-8, which "
            'spreadsheets call "CSV UTF-8".'
        )
    if next(lines_of(file), None) is None:
        raise RecordsError(
            f"Cannot read {file}: it is empty. Write the names of the columns into the "
            "first line, and a record into each other line."
        )


def count_records(file: Path, header: TableHeader, every_line: bool) -> int:
    """How many records a file has. With `every_line`, an empty line is one."""
    if is_parquet(file):
        return int(open_parquet(file, _EXTRA).metadata.num_rows)
    count = count_lines(file, header.encoding, empty=every_line)
    first = next(lines_of(file, header.encoding))
    return count - 1 if first or every_line else count


def read_blocks(
    file: Path, header: TableHeader, places: Collection[int], every_line: bool = False
) -> Iterator[TextColumns]:
    """The records of a file in blocks, of which the columns at `places` are read. The
    others may be there or not.
    """
    if is_parquet(file):
        yield from _parquet_blocks(file, header.decimal, places)
        return
    width = max(places) + 1
    lines = _lines(file, header, every_line)
    while block := list(islice(lines, RECORDS_AT_ONCE)):
        rows = [split_line(line, header.delimiter) for line in block]
        yield _transposed(rows, width)


def _lines(file: Path, header: TableHeader, every_line: bool) -> Iterator[str]:
    """All lines but the first. Empty ones only with `every_line`."""
    lines = islice(lines_of(file, header.encoding), 1, None)
    return lines if every_line else filter(None, lines)


def _transposed(rows: Sequence[Sequence[str]], width: int) -> TextColumns:
    """The first `width` columns; a short row has no values in the last ones."""
    if any(len(row) < width for row in rows):
        nothing = [""] * width
        rows = [[*row, *nothing][:width] for row in rows]
    # up to the shortest row, which has them all
    return list(zip(*rows, strict=False))


def _parquet_blocks(
    file: Path, decimal: str, places: Collection[int]
) -> Iterator[TextColumns]:
    parquet = open_parquet(file, _EXTRA)
    names = parquet.schema_arrow.names
    wanted = {names[place]: place for place in places}
    for batch in parquet.iter_batches(RECORDS_AT_ONCE, columns=list(wanted)):
        block: list[Sequence[str]] = [()] * len(names)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in wanted:  # "a" also finds a column "a.b"
                block[wanted[name]] = _texts(column, decimal)
        yield block


def _texts(column: Any, decimal: str) -> list[str]:
    """The values of a column of Arrow as texts, each as it would be without the others."""
    import pyarrow.types as types

    values: Iterable[Any] = map(python_value, column)
    numbers = types.is_integer(column.type) or types.is_float64(column.type)
    if numbers and not column.null_count:
        values = column.to_numpy().tolist()  # the same in a fraction of the time
    return [cell_text(value, decimal) for value in values]


def stripped(texts: Sequence[str]) -> Sequence[str]:
    """Texts without spaces around them, at once if there are none in any of them."""
    everything = "".join(texts)
    if everything.split(maxsplit=1) == [everything]:
        return texts
    return list(map(str.strip, texts))


def cell_text(value: Any, decimal: str) -> str:
    """A value as a .csv of the schema would have it, or "" for one that cannot be
    written.
    """
    if isinstance(value, complex):  # as all of a column are next to one of them
        if value.imag:
            return ""
        value = value.real
    text = name_or_nobody(value)
    if isinstance(value, (float, np.floating, Decimal)):
        return text.replace(".", decimal)
    return text


def nested_columns(file: Path) -> list[str]:
    """The columns of a .parquet whose values have parts."""
    import pyarrow.types as types

    schema = open_parquet(file, _EXTRA).schema_arrow
    return [field.name for field in schema if types.is_nested(field.type)]


def all_columns(file: Path, header: TableHeader) -> dict[str, list[str]]:
    """All columns of a file without spaces around their values, in the order of its
    records.
    """
    names = file_columns(file, header)
    columns: dict[str, list[str]] = {name: [] for name in names}
    for block in read_blocks(file, header, range(len(names))):
        for place, name in enumerate(names):
            columns[name] += map(str.strip, block[place])
    return columns
