"""Records of a table in little memory: what differs between them, from which rows of
numbers are made when they are read.

A value of a table is one of a few things, such as an interval or a name, and becomes
one number for each of them. So a table of 100 columns may have 1,000 numbers a record,
of which all but 200 are zero. A record is held as one code for each column, and a float
for each number and flag.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedaux.data.table_schema import Column, TableSchema

Codes = NDArray[np.unsignedinteger[Any]]
Floats = NDArray[np.float32]


def code_of_missing(column: Column) -> int:
    """The code of a missing value: it comes after those of a number's intervals, or of
    no and yes or a category's values and of any other value.
    """
    return len(column.bins if column.kind == "number" else column.values) + 1


def has_value(column: Column) -> bool:
    """Whether a value is also a number by itself."""
    return column.kind != "category"


@dataclass(frozen=True, eq=False)
class RowLayout:
    """Where the numbers of an encoded record are, by schema.

    Attributes:
        width: The numbers of a record.
        values: The place of each number and flag.
        starts: The first entry of `places` of each column.
        places: The place that a code sets to 1; `width` for one that sets none.
    """

    width: int
    values: NDArray[np.intp]
    starts: NDArray[np.intp]
    places: NDArray[np.intp]

    @classmethod
    def of(cls, schema: TableSchema) -> Self:
        nowhere = -1
        values: list[int] = []
        starts: list[int] = []
        places: list[int] = []
        width = 0
        for column in schema.columns.values():
            known = code_of_missing(column)
            starts.append(len(places))
            if has_value(column):
                values.append(width)
                width += 1
            if column.kind == "category" or column.bins:
                places += range(width, width + known)
                width += known
            else:
                places += [nowhere] * known
            places.append(width if column.missing else nowhere)
            width += column.missing
        table = np.array(places, dtype=np.intp)
        table[table == nowhere] = width
        return cls(width, np.array(values, np.intp), np.array(starts, np.intp), table)

    def rows(self, values: Floats, codes: Codes) -> Floats:
        """Encoded records, (records, width)."""
        # one column more, for codes that set none
        rows = np.zeros((len(codes), self.width + 1), dtype=np.float32)
        rows[:, self.values] = values
        np.put_along_axis(rows, self.places[codes + self.starts], 1.0, axis=1)
        return np.ascontiguousarray(rows[:, :-1])


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Encoded records, which are read as an array of float32, (records, numbers): by a
    slice, by positions or by a mask.

    Attributes:
        layout: Where their numbers are.
        values: The numbers and flags of each record.
        codes: The code of each column.
    """

    layout: RowLayout
    values: Floats
    codes: Codes

    @classmethod
    def of(
        cls,
        schema: TableSchema,
        blocks: Iterable[tuple[Floats, Codes]],
        count: int,
    ) -> Self:
        """`count` records that come in blocks, of which there may be fewer."""
        columns = schema.columns.values()
        largest = max(map(code_of_missing, columns))
        numbers = sum(map(has_value, columns))
        values = np.zeros((count, numbers), dtype=np.float32)
        codes = np.zeros((count, len(columns)), dtype=np.min_scalar_type(largest))
        start = 0
        for block_values, block_codes in blocks:
            end = start + len(block_codes)
            values[start:end] = block_values
            codes[start:end] = block_codes
            start = end
        return cls(RowLayout.of(schema), values, codes)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The records of several tables of one schema."""
        values = np.concatenate([part.values for part in parts])
        codes = np.concatenate([part.codes for part in parts])
        return cls(parts[0].layout, values, codes)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.codes), self.layout.width

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> np.dtype[np.float32]:
        return np.dtype(np.float32)

    @property
    def nbytes(self) -> int:
        """Of the array that these are read as."""
        return 4 * self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Floats:
        return self.layout.rows(self.values[index], self.codes[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)
