"""A schema and settings proposed from a table, each with its reason
(`fedaux init table`).

Ranges and values come from public rows. Without any they come from the private file on
this machine, and the schema says so: no site reads its records by it before a person
has confirmed it (`TableSchema.require_confirmed`).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedaux.core.errors import Exit, FedauxError
from fedaux.data.arrays import require_file
from fedaux.data.choices import Choice
from fedaux.data.lines import MAX_FIELD_SIZE, lines_of, split_line
from fedaux.data.parquet import is_parquet
from fedaux.data.table_encoding import plain_spelling, same_name, to_number
from fedaux.data.table_files import (
    all_columns,
    count_records,
    file_columns,
    nested_columns,
    require_lines,
)
from fedaux.data.table_schema import (
    MISSING_VALUES,
    Column,
    Encoding,
    TableHeader,
    TableSchema,
)

DELIMITERS = (",", ";", "\t", "|")
LOOKED_AT = 200  # lines that tell a file's delimiter and decimal mark
MAX_CLASSES = 100
FEW_CODES = 8  # whole numbers that are at most so many may be codes
MAX_VALUES = 50  # of a category
UNIQUE = 0.9  # share of different values from which texts are names or free text
FREE_TEXT = 3  # words from which a text is no name
FEW_RECORDS = 2_000  # below which second moments do not pay
MANY_DIRECTIONS = 32
MANY_RECORDS = 10_000  # from which intervals of numbers are told apart
INTERVALS = 10
NESTED = "nested: make a column of each part"
FLAGS = (
    ("0", "1"),
    ("no", "yes"),
    ("n", "y"),
    ("false", "true"),
    ("f", "t"),
    ("nein", "ja"),
    ("non", "oui"),
)
IDENTIFIER = re.compile(
    r"(^|[^a-z])(id|ids|uuid|guid|mrn|ssn|key|nr|no|number|index|row)$", re.IGNORECASE
)
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}.*|\d{1,2}[./]\d{1,2}[./]\d{2,4}.*")


class TableError(FedauxError, ValueError):
    """A table for which no settings can be proposed. The message says why."""

    code = Exit.DATA


@dataclass(frozen=True)
class TextTable:
    """A file's values as texts, by column, and how they were read."""

    path: Path
    columns: dict[str, list[str]]
    delimiter: str
    decimal: str
    encoding: Encoding
    short: int = 0  # lines with another number of values than the first
    nested: tuple[str, ...] = ()  # columns that are left out: values with parts

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


@dataclass(frozen=True)
class TableProposal:
    """What `propose` makes of the files."""

    schema: TableSchema
    comments: list[str]  # above the schema
    choices: list[Choice]
    notes: list[str]  # for whoever looks on


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
    _require_names(path, names)
    rows = [split_line(line, delimiter) for line in lines[1:]]
    columns = {
        name: [row[place].strip() if place < len(row) else "" for row in rows]
        for place, name in enumerate(names)
    }
    short = sum(len(row) != len(names) for row in rows)
    decimal = _decimal(columns, delimiter)
    return TextTable(path, columns, delimiter, decimal, encoding, short)


def _read_parquet(path: Path) -> TextTable:
    header = TableHeader()
    names = file_columns(path, header)
    _require_names(path, names)
    if not count_records(path, header, every_line=False):
        raise TableError(f"Cannot read {path}: it has no record. Write some into it.")
    columns = all_columns(path, header)
    nested = nested_columns(path)
    flat = {name: columns[name] for name in names if name not in nested}
    return TextTable(
        path,
        flat,
        header.delimiter,
        header.decimal,
        header.encoding,
        nested=tuple(nested),
    )


def _require_names(path: Path, names: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise TableError(
            f"Cannot read {path}: it has the column {twice[0]!r} twice. Give each "
            "column another name."
        )
    if "" in names:
        raise TableError(
            f"Cannot read {path}: column {names.index('') + 1} has no name. Give it "
            "one in the first line."
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


def propose(
    private: Path,
    label: str,
    site: str = "",
    public: Path | None = None,
    clients: int = 3,
    test_fraction: float = 0.2,
) -> TableProposal:
    """Propose a schema and settings for `fedaux init table --data PRIVATE --label
    LABEL`.

    Args:
        private: The labelled records.
        label: The column of the class.
        site: The column that says whose a record is. "" simulates `clients`.
        public: Public records with the same columns, without which ranges and values
            are those of the private ones, to be confirmed.
        clients: How many clients to simulate where no column says.
        test_fraction: The share that is held out for testing.
    """
    table = read_texts(private)
    _require_columns(table, label, site)
    classes = _classes(table, label)
    reference = table if public is None else read_texts(public)
    columns: dict[str, Column] = {}
    dropped = dict.fromkeys(table.nested, NESTED)
    for name in table.columns:
        if name == label:
            continue
        if name == site:
            dropped[name] = "the site's name"
        elif name not in reference.columns:
            is_nested = name in reference.nested
            dropped[name] = NESTED if is_nested else f"not in {reference.path.name}"
        else:
            column, reason = propose_column(
                name, reference.columns[name], reference.decimal, len(table)
            )
            if column is None:
                dropped[name] = reason
            else:
                columns[name] = column
    if not columns:
        reasons = ", ".join(f"{name}: {why}" for name, why in dropped.items())
        raise TableError(
            f"Cannot propose a schema for {private}: no column is left ({reasons}). "
            "Write the schema by hand: `fedaux init table` without --data shows one."
        )
    written = next(iter(_text_files(table, reference)), table)
    header = TableHeader(
        label,
        classes,
        site,
        written.delimiter,
        written.decimal,  # type: ignore[arg-type]
        written.encoding,
        confirmed=public is not None,
    )
    schema = TableSchema(header, columns, dropped)
    notes = _notes(table, reference, schema, label)
    choices = _choices(table, reference, schema, clients, test_fraction)
    return TableProposal(schema, _comments(schema, reference), choices, notes)


def _require_columns(table: TextTable, label: str, site: str) -> None:
    for name, option in ((label, "--label"), (site, "--site")):
        if name and name not in table.columns:
            raise TableError(
                f"Cannot take {name!r} as {option}: {table.path} has the columns "
                f"{', '.join(table.columns)}. Name one of them."
            )
        if not name:
            continue
        values = table.columns[name]
        missing = [
            place for place, value in enumerate(values) if value in MISSING_VALUES
        ]
        if missing:
            hint = f" {_short_lines(table)}" if table.short else ""
            raise TableError(
                f"Cannot take {name!r} as {option}: {len(missing)} of {len(values)} "
                f"records have none, record {missing[0] + 1} for one. Fill it in, or "
                f"take these records out.{hint}"
            )


def _classes(table: TextTable, label: str) -> tuple[str, ...]:
    counts = Counter(map(same_name, table.columns[label]))
    if not 2 <= len(counts) <= MAX_CLASSES:
        raise TableError(
            f"Cannot take {label!r} as --label: it has {len(counts)} different values, "
            f"and classes are 2 to {MAX_CLASSES}. Name another column, or make classes "
            "of it, such as intervals of a number."
        )
    for known, name in _spelled_twice(counts):
        raise TableError(
            f"Cannot take {label!r} as --label: {known!r} ({counts[known]} "
            f"records) and {name!r} ({counts[name]}) are two spellings of one "
            "class. Give it one."
        )
    return tuple(sorted(counts))


def _spelled_twice(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ in spelling only."""
    spellings: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for name in names:
        known = spellings.setdefault(plain_spelling(name), name)
        if known != name:
            pairs.append((known, name))
    return pairs


def propose_column(
    name: str, values: Sequence[str], decimal: str, records: int
) -> tuple[Column | None, str]:
    """(what a column is, "") or (None, why it is left out), from these values of it."""
    present = [value for value in values if value not in MISSING_VALUES]
    missing = len(present) < len(values)
    counts = Counter(map(same_name, present))
    if len(counts) < 2:
        return None, "the same in all records" if counts else "without values"
    numbers = np.array([to_number(value, decimal) for value in present])
    if np.isfinite(numbers).all():
        return _propose_number(name, numbers, counts, missing, records)
    pair = _flag(counts)
    if pair:
        return Column("flag", values=pair, missing=missing), ""
    return _propose_category(present, counts, missing)


def _propose_number(
    name: str,
    numbers: np.ndarray[tuple[int], np.dtype[np.float64]],
    counts: Counter[str],
    missing: bool,
    records: int,
) -> tuple[Column | None, str]:
    pair = _flag(counts)
    if pair:
        return Column("flag", values=pair, missing=missing), ""
    whole = bool((numbers == np.rint(numbers)).all())
    if whole and len(counts) == len(numbers) > FEW_CODES:
        consecutive = np.ptp(numbers) == len(numbers) - 1
        if consecutive or IDENTIFIER.search(name):
            return None, "an identifier: a number for each record"
    if whole and len(counts) <= FEW_CODES:
        codes = tuple(sorted(counts, key=float))
        return Column("category", values=codes, missing=missing), ""
    low, high = _round_range(float(numbers.min()), float(numbers.max()))
    shares = np.linspace(0.0, 1.0, 11)
    inner = np.quantile(numbers, shares[1:-1], method="closest_observation")
    bins: tuple[float, ...] = ()
    if records >= MANY_RECORDS:
        bins = _intervals(numbers)
    quantiles = (low, *map(float, inner), high)
    return Column("number", (low, high), quantiles, bins, missing=missing), ""


def _intervals(
    numbers: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> tuple[float, ...]:
    """The bounds of intervals of equally many values. A value that is more frequent than
    that has an interval to itself, and the others are divided without it: where most
    are zero, as of a gain, these would otherwise be one interval
    (`studies/results/tables.md`).
    """
    values, counts = np.unique(numbers, return_counts=True)
    place = int(counts.argmax())
    bounds: set[float] = set()
    if counts[place] > len(numbers) / INTERVALS:
        # lower bounds of the interval and of the next one
        bounds.update(map(float, values[max(place, 1) : place + 2]))
        numbers = numbers[numbers != values[place]]
    shares = np.linspace(0.0, 1.0, INTERVALS + 1)[1:-1]
    edges = np.quantile(numbers, shares, method="closest_observation")
    bounds.update(map(float, edges))
    return tuple(sorted(bounds))


def _round_range(low: float, high: float) -> tuple[float, float]:
    """A range around these values whose ends have few digits: no one's exact value."""
    step = 10.0 ** np.floor(np.log10(high - low))
    least = float(np.floor(low / step) * step)
    largest = float(np.ceil(high / step) * step)
    digits = max(0, -int(np.floor(np.log10(step))))
    return round(least, digits), round(largest, digits)


def _flag(counts: Counter[str]) -> tuple[str, str] | None:
    """(no, yes), if these are two such values."""
    if len(counts) != 2:
        return None
    for no, yes in FLAGS:
        named = {name.casefold(): name for name in counts}
        if set(named) == {no, yes}:
            return named[no], named[yes]
    return None


def _propose_category(
    present: Sequence[str], counts: Counter[str], missing: bool
) -> tuple[Column | None, str]:
    dates = sum(DATE.fullmatch(value) is not None for value in present)
    if dates > len(present) / 2:
        return None, "dates: make numbers of them, such as an age"
    if len(counts) > UNIQUE * len(present) and len(present) > FEW_CODES:
        words = sum(len(value.split()) for value in present) / len(present)
        if words >= FREE_TEXT:
            return None, "free text"
        return None, "an identifier: nearly every value is another"
    if len(counts) > MAX_VALUES:
        return None, f"{len(counts)} different values: group them"
    return Column("category", values=tuple(sorted(counts)), missing=missing), ""


def _notes(
    table: TextTable, reference: TextTable, schema: TableSchema, label: str
) -> list[str]:
    files = [table] if table is reference else [table, reference]
    notes = [f"{file.path}: {_short_lines(file)}" for file in files if file.short]
    extra = [name for name in reference.columns if name not in table.columns]
    if extra:
        notes.append(f"{reference.path}: not in {table.path}: {', '.join(extra)}")
    if reference is not table and label in reference.columns:
        notes.append(f"{reference.path}: labels of public records are not read")
    if len({_written(file) for file in _text_files(table, reference)}) > 1:
        raise TableError(
            f"Cannot read {table.path} and {reference.path} by one schema: delimiter, "
            f"decimal mark and encoding are {_written(table)} and "
            f"{_written(reference)}. Save both alike."
        )
    notes += _spelling_notes(table, schema)
    notes += _notes_of_sites(table, schema)
    if not schema.header.confirmed:
        notes.append(
            "ranges and values come from your own records: a site reads no records by "
            "them until you replace them by what is public and write confirmed = true"
        )
    return notes


def _short_lines(table: TextTable) -> str:
    return (
        f"{table.short} of {len(table)} lines have more or fewer values than the first "
        "line has names. Is there a line break within quotes?"
    )


def _spelling_notes(table: TextTable, schema: TableSchema) -> list[str]:
    """The values of categories, and the names of sites, that are spelled twice."""
    values = {
        name: column.values
        for name, column in schema.columns.items()
        if column.kind == "category"
    }
    site = schema.header.site
    if site:
        values[site] = tuple(sorted(set(map(same_name, table.columns[site]))))
    return [
        f"{name}: {known!r} and {other!r} look like two spellings of one value"
        for name, named in values.items()
        for known, other in _spelled_twice(named)
    ]


def _notes_of_sites(table: TextTable, schema: TableSchema) -> list[str]:
    """The columns that have values at one site only, which tell whose a record is."""
    site = schema.header.site
    if not site:
        return []
    sites = [same_name(value) for value in table.columns[site]]
    if len(set(sites)) < 2:
        return []
    notes: list[str] = []
    for name in schema.columns:
        filled = {
            at
            for at, value in zip(sites, table.columns[name], strict=True)
            if value not in MISSING_VALUES
        }
        if len(filled) == 1:
            notes.append(
                f"{name}: only {filled.pop()} has values, so the column says whose a "
                "record is. Take it out of the schema, unless all sites will have it"
            )
    return notes


def _text_files(*tables: TextTable) -> list[TextTable]:
    """Those that are no .parquet, in which nothing depends on how it is written."""
    return [table for table in tables if not is_parquet(table.path)]


def _written(table: TextTable) -> str:
    return f"{table.delimiter!r}, {table.decimal!r}, {table.encoding}"


def _comments(schema: TableSchema, reference: TextTable) -> list[str]:
    source = f"{len(reference)} public records of {reference.path.name}"
    if not schema.header.confirmed:
        source = (
            f"the private records of {reference.path.name}: replace them by what is "
            "public"
        )
    return [
        "What each column of the table is. Every record is encoded only by this file,",
        "so it is public, and alike at all sites. Look through it, and change what is "
        "wrong.",
        f"Ranges and values come from {source}.",
        "Kinds: number (values outside its range count as its ends), category (any",
        'other value is "another value"), flag (no, then yes). missing = true: a',
        "missing or unreadable value gets an extra column.",
    ]


def _choices(
    table: TextTable,
    reference: TextTable,
    schema: TableSchema,
    clients: int,
    test_fraction: float,
) -> list[Choice]:
    private = round(len(table) * (1 - test_fraction))
    kinds = Counter(column.kind for column in schema.columns.values())
    kinds_text = ", ".join(f"{count} of kind {kind}" for kind, count in kinds.items())
    public = reference is not table
    if public:
        aux = [
            Choice(
                "aux.path", str(reference.path), f"{len(reference):,} public records"
            ),
        ]
    else:
        aux = [
            Choice("aux.source", "schema", "no public records: drawn from the schema"),
            Choice("aux.path", "schema.toml", "column by column, of no one"),
            Choice("aux.options", {"rows": 1000}, "of them"),
        ]
    return [
        Choice(
            "data.path",
            str(table.path),
            f"{len(table):,} records, {kinds_text}, of which {test_fraction:.0%} are "
            "held out",
        ),
        Choice("data.classes", list(schema.header.classes), "the label's values"),
        *_clients(table, schema.header.site, clients),
        *aux,
        Choice("privacy.expected_records", private, "of all clients, without the test"),
        *release_choices(private, len(schema.header.classes), public),
    ]


def release_choices(records: int, classes: int, public: bool) -> list[Choice]:
    """What a site sends, by how many records all sites have together.

    Few records carry few directions, and the public covariance is better than a noisy
    one of their own. Of two classes, one sum of their difference has the least noise.
    With many records it is the other way round. Records drawn from a schema do not say
    which directions matter, so all of them are taken (`studies.tables`).
    """
    if records < FEW_RECORDS and classes == 2 and public:
        why = f"a signed sum: {records:,} records of two classes are few"
        return [
            Choice("privacy.scorer", "class-moments", why),
            Choice("privacy.embedding_dim", 0, "chosen on the public records"),
        ]
    if records < FEW_RECORDS:
        why = f"sums of each class only: {records:,} records are few"
        directions = Choice(
            "privacy.embedding_dim", max(8, 2 * classes), "few directions"
        )
        if not public:
            directions = Choice(
                "privacy.embedding_dim",
                MANY_DIRECTIONS,
                "many: no public records show which matter",
            )
        return [Choice("privacy.scorer", "class-embedding", why), directions]
    if records < MANY_RECORDS:
        return [Choice("privacy.embedding_dim", 0, "chosen on public data")]
    return [Choice("privacy.embedding_dim", 100, f"{records:,} records are many")]


def _clients(table: TextTable, site: str, clients: int) -> list[Choice]:
    if not site:
        share = len(table) / clients
        return [Choice("data.clients", clients, f"about {share:,.0f} records each")]
    counts = Counter(map(same_name, table.columns[site]))
    names = sorted(counts)
    sizes = ", ".join(f"{name} {counts[name]:,}" for name in names[:10])
    return [
        Choice("data.partition", "given", f"the column {site}: {sizes} records"),
        Choice("data.clients", len(names), "as many as there are sites"),
        Choice("federation.sites", site_names(names), "their names"),
    ]


def site_names(values: Sequence[str]) -> list[str]:
    """Names of sites as settings take them: letters, digits, - and _, all different."""
    names: list[str] = []
    for value in values:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", value).strip("-_")[:60] or "site"
        name = plain
        number = 2
        while name in names:
            name = f"{plain}-{number}"
            number += 1
        names.append(name)
    return names
