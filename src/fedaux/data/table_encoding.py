"""A table's values as numbers, by the schema alone.

    number     its place between the range's ends, from −1 to 1. By quantiles, its share
               of public records. Then one column for each interval of its bins
    category   a column for each value, and one for any other value
    flag       0 for no, 1 for yes

Where a value may be missing, one more column says that it is. A missing or unreadable
number counts as the middle, a flag as a half, and a category has no value. What a value
becomes depends on it and the schema, to the last bit: every operation is one of single
numbers (tests/attacks/test_source_contract.py).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedaux.data.table_rows import Codes, Floats, RowLayout, code_of_missing
from fedaux.data.table_schema import Column, TableHeader, TableSchema

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]

# a whole number as a column of floats has it: 3.0, or 3,0
WHOLE_NUMBER = re.compile(r"(-?[0-9]+)[.,]0*")
NAN = float("nan")
ANOTHER_VALUE = "another value"  # than those that a schema names


def to_number(text: str, decimal: str = ".") -> float:
    """The number that a text is, NaN if it is none. Too large ones are infinite."""
    if decimal == ",":
        if "." in text:
            return NAN
        text = text.replace(",", ".")
    if "_" in text:  # which Python would ignore
        return NAN
    try:
        return float(text)
    except ValueError:
        return NAN


def to_numbers(
    texts: Sequence[str], missing: frozenset[str], decimal: str = "."
) -> Numbers:
    """`to_number` of each text, NaN for a missing one, in a fraction of the time if all
    of them are numbers.
    """
    if not _has_numbers(missing, decimal):
        numbers = _all_numbers(texts, decimal)
        if numbers is not None:
            return numbers
    told = ["nan" if text in missing else text for text in texts]
    numbers = _all_numbers(told, decimal)
    if numbers is not None:
        return numbers
    return np.array([to_number(text, decimal) for text in told], dtype=np.float64)


@lru_cache(maxsize=64)
def _has_numbers(missing: frozenset[str], decimal: str) -> bool:
    """Whether a missing value is written as a number, such as -999."""
    numbers = [to_number(text, decimal) for text in missing]
    return any(number == number for number in numbers)


def _all_numbers(texts: Sequence[str], decimal: str) -> Numbers | None:
    """`to_number` of each text at once, or None if one of them may be no number."""
    everything = "".join(texts)
    if "_" in everything or (decimal == "," and "." in everything):
        return None
    usual = texts
    if decimal == ",":
        usual = [text.replace(",", ".") for text in texts]
    try:
        return np.fromiter(map(float, usual), np.float64, len(usual))
    except ValueError:
        return None


def same_name(text: str) -> str:
    """The name of a value, the same for 3 and 3.0."""
    whole = WHOLE_NUMBER.fullmatch(text)
    return whole[1] if whole else text


def plain_spelling(text: str) -> str:
    """What a name has in common with its other spellings: without capitals, doubled
    spaces, and Unicode's other ways to write a character.
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def column_names(schema: TableSchema) -> list[str]:
    """The name of each number of an encoded record."""
    names = []
    for name, column in schema.columns.items():
        if column.kind == "category":
            names += [f"{name} = {value}" for value in column.values]
            names.append(f"{name} = {ANOTHER_VALUE}")
        else:
            names.append(name)
        if column.bins:
            ends = [f"{bound:g}" for bound in column.bins]
            names.append(f"{name} below {ends[0]}")
            names += [f"{name} from {low}" for low in ends]
        if column.missing:
            names.append(f"{name} is missing")
    return names


def encode(
    schema: TableSchema, columns: Sequence[Sequence[str]]
) -> NDArray[np.float32]:
    """Encode records.

    Args:
        schema: The schema.
        columns: The values of each of its columns, as texts without spaces around them.

    Returns:
        (records, numbers), with a number for each of `column_names`.
    """
    return RowLayout.of(schema).rows(*encode_compactly(schema, columns))


def encode_compactly(
    schema: TableSchema, columns: Sequence[Sequence[str]]
) -> tuple[Floats, Codes]:
    """`encode` in little memory: what `EncodedRows` holds of these records."""
    header = schema.header
    missing = frozenset(header.missing)
    values: list[Numbers] = []
    codes: list[Integers] = []
    for column, texts in zip(schema.columns.values(), columns, strict=True):
        if column.kind == "category":
            codes.append(_category_codes(column, texts, missing))
            continue
        if column.kind == "number":
            of_value, of_code = _numbers(column, texts, missing, header.decimal)
        else:
            of_value, of_code = _flags(column, texts)
        values.append(of_value)
        codes.append(of_code)
    count = len(codes[0])
    floats = np.empty((count, len(values)), dtype=np.float32)
    for place, of_column in enumerate(values):
        floats[:, place] = of_column
    largest = max(map(code_of_missing, schema.columns.values()))
    whole = np.empty((count, len(codes)), dtype=np.min_scalar_type(largest))
    for place, of_code in enumerate(codes):
        whole[:, place] = of_code
    return floats, whole


def _numbers(
    column: Column, texts: Sequence[str], missing: frozenset[str], decimal: str
) -> tuple[Numbers, Integers]:
    """(places in the range, intervals)"""
    values = to_numbers(texts, missing, decimal)
    absent = np.isnan(values)
    least, largest = column.range
    clipped = np.clip(np.where(absent, least, values), least, largest)
    intervals = np.zeros(len(values), dtype=np.int64)
    if column.bins:
        intervals = np.searchsorted(column.bins, clipped, side="right")
    codes = np.where(absent, code_of_missing(column), intervals)
    return np.where(absent, 0.0, scale(column, clipped)), codes


def scale(column: Column, values: Numbers) -> Numbers:
    """Values within the range, linearly between the points to −1 … 1."""
    points, places, slopes = _line(column.quantiles or column.range)
    within = np.clip(values, points[0], points[-1])
    before = np.searchsorted(points, within, side="right") - 1
    segment = np.minimum(before, len(slopes) - 1)
    scaled: Numbers = places[segment] + slopes[segment] * (within - points[segment])
    return scaled


@lru_cache(maxsize=1024)
def _line(points: tuple[float, ...]) -> tuple[Numbers, Numbers, Numbers]:
    """(points that differ, their places from −1 to 1, the slope behind each). A value
    that is several quantiles has the mean of their places.
    """
    even = np.linspace(-1.0, 1.0, len(points))
    values, index = np.unique(np.array(points), return_inverse=True)
    places = np.bincount(index, weights=even) / np.bincount(index)
    if len(values) == 1:
        return values, places, np.zeros(1)
    return values, places, np.diff(places) / np.diff(values)


def _flags(column: Column, texts: Sequence[str]) -> tuple[Numbers, Integers]:
    """(0 or 1, codes)"""
    codes = _flag_codes(column, texts)
    return np.where(codes == code_of_missing(column), 0.5, codes), codes


def _flag_codes(column: Column, texts: Sequence[str]) -> Integers:
    """0 for no, 1 for yes. Anything else counts as missing."""
    absent = code_of_missing(column)
    code = {name.casefold(): number for number, name in enumerate(column.values)}
    known = {text: code.get(same_name(text).casefold(), absent) for text in set(texts)}
    return np.array([known[text] for text in texts], dtype=np.int64)


def _category_codes(
    column: Column, texts: Sequence[str], missing: frozenset[str]
) -> Integers:
    """The place of each value, of any other value, and of a missing one."""
    absent = code_of_missing(column)
    other = len(column.values)
    code = {name: number for number, name in enumerate(column.values)}
    known = {
        text: code.get(same_name(text), absent if text in missing else other)
        for text in set(texts)
    }
    return np.array([known[text] for text in texts], dtype=np.int64)


def bins_of_values(
    column: Column, texts: Sequence[str], edges: Sequence[float], header: TableHeader
) -> Integers:
    """Return the bin of each value of a column, for counts.

    A number is in the interval between two `edges`, below all of them or above, and
    a missing or unreadable one in the last bin. A category or a flag is in the bin of
    its value, of any other value, or in the last one.
    """
    missing = frozenset(header.missing)
    if column.kind == "flag":
        return _flag_codes(column, texts)
    if column.kind == "category":
        return _category_codes(column, texts, missing)
    values = to_numbers(texts, missing, header.decimal)
    intervals = np.searchsorted(edges, values, side="right")
    return np.where(np.isnan(values), len(edges) + 1, intervals)
