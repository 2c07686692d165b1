"""A schema and settings proposed from a table, each with its reason
(`fedaux init table`).

Ranges and values come from public rows. Without any they come from the private file on
this machine, and the schema says so: no site reads its records by it before a person
has confirmed it (`TableSchema.require_confirmed`).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedaux.data.choices import Choice
from fedaux.data.table_encoding import plain_spelling, same_name, to_numbers
from fedaux.data.table_schema import (
    Column,
    FileMarks,
    TableHeader,
    TableSchema,
)
from fedaux.data.table_texts import (
    NO_NAME,
    ColumnTexts,
    TableError,
    TextTable,
    joined_texts,
    read_texts,
)

MAX_CLASSES = 100
FEW_CODES = 8  # whole numbers that are at most so many may be codes
MAX_VALUES = 50  # of a category
UNIQUE = 0.9  # share of different values from which texts are names or free text
FREE_TEXT = 3  # words from which a text is no name
FEW_RECORDS = 2_000  # below which second moments do not pay
MANY_DIRECTIONS = 32
MANY_RECORDS = 10_000  # from which intervals of numbers are told apart
INTERVALS = 10
# below which noise hides what a trained map shows (docs/tables.md)
LEAST_EPSILON_OF_MAP = 0.3
LEAST_ROWS_OF_MAP = 100
WIDE_RANGE = 2**31  # a range of whole numbers that are keys, if hardly any occurs twice
NESTED = "nested: make a column of each part"
ROW_INDEX = "row index"
DRAWN_ROWS = 1000  # public rows, where there are none
AN_IDENTIFIER = "an identifier"
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
UNIT_NAMES = (
    "kg|g|mg|ug|ng|lb|lbs|oz|km|m|cm|mm|ft|in|l|ml|dl|s|sec|ms|min|h|hr|hours|days|"
    "weeks|months|years|yrs|bpm|mmhg|celsius|fahrenheit|pct|percent|eur|usd|gbp|chf"
)
# age (years), weight_kg
NAMED_UNIT = re.compile(
    rf"[(\[]([^()\[\]]{{1,12}})[)\]]$|_({UNIT_NAMES})$", re.IGNORECASE
)
DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}.*|\d{1,2}[./]\d{1,2}[./]\d{2,4}.*")


@dataclass(frozen=True)
class TableProposal:
    """What `propose` makes of the files."""

    schema: TableSchema
    comments: list[str]  # above the schema
    choices: list[Choice]
    notes: list[str]  # for whoever looks on


def propose(
    private: Path | Sequence[Path],
    label: str,
    site: str = "",
    public: Path | None = None,
    clients: int = 3,
    test_fraction: float = 0.2,
) -> TableProposal:
    """Propose a schema and settings for `fedaux init table --data PRIVATE --label
    LABEL`.

    Args:
        private: The labelled records: a file, or a file of each site.
        label: The column of the class.
        site: The column that says whose a record is. "" simulates `clients`.
        public: Public records with the same columns, without which ranges and values
            are those of the private ones, to be confirmed.
        clients: How many clients to simulate where nothing says.
        test_fraction: The share that is held out for testing.
    """
    files = [private] if isinstance(private, Path) else list(private)
    tables = [read_texts(file, label, site) for file in files]
    reference = None if public is None else read_texts(public)
    schema, notes = propose_schema(tables, label, site, reference)
    choices = [
        *_data_choices(files, tables, schema, test_fraction),
        *_clients(files, tables, schema.header.site, clients),
        *_public_choices(public, reference),
        *_head_choices(tables, schema, reference, test_fraction),
    ]
    return TableProposal(schema, _comments(schema, tables, reference), choices, notes)


def propose_schema(
    tables: Sequence[TextTable],
    label: str,
    site: str = "",
    public: TextTable | None = None,
) -> tuple[TableSchema, list[str]]:
    """(schema, notes for whoever looks on) for these records, by public ones if there
    are any.

    Args:
        tables: The labelled records, in one table or one of each site.
        label: The column of the class.
        site: The column that says whose a record is, if it is one table.
        public: Public records with the same columns.
    """
    table = joined_texts(tables)
    for part in tables:
        _require_columns(part, label, site)
    classes = _classes(table, label)
    references = tables if public is None else [public]
    columns, dropped = _propose_columns(tables, references, label, site)
    if not columns:
        reasons = ", ".join(f"{name}: {why}" for name, why in dropped.items())
        raise TableError(
            f"Cannot propose a schema for {table.name}: no column is left ({reasons}). "
            "Write the schema by hand: `fedaux init table` without --data shows one."
        )
    files = [part for part in (*tables, *references) if not part.typed]
    # where the private files have types, the public one says how a .csv is written
    marks = joined_texts(references).marks if table.typed else table.marks
    header = TableHeader(
        label,
        classes,
        site if len(tables) == 1 else "",
        marks.delimiter,
        marks.decimal,
        marks.encoding,
        confirmed=public is not None,
    )
    schema = TableSchema(header, columns, dropped, _written(files, marks))
    return schema, _notes(tables, public, schema)


def _written(files: Sequence[TextTable], marks: FileMarks) -> dict[str, FileMarks]:
    """By its name, how a file is written, where it is not written like most."""
    written = {
        Path(file.name).name: file.marks for file in files if file.marks != marks
    }
    for file in files:
        name = Path(file.name).name
        if written.get(name, marks) != file.marks:
            raise TableError(
                f"Cannot read {file.name}: another file of the name {name} has another "
                "delimiter, decimal mark or encoding. Give it another name, or save "
                "both alike."
            )
    return written


def _propose_columns(
    tables: Sequence[TextTable],
    references: Sequence[TextTable],
    label: str,
    site: str,
) -> tuple[dict[str, Column], dict[str, str]]:
    """(what the columns are, why others are left out)."""
    table = joined_texts(tables)
    reference = joined_texts(references)
    columns: dict[str, Column] = {}
    dropped = dict.fromkeys(table.nested, NESTED)
    for name in dict.fromkeys(name for part in tables for name in part.columns):
        lacking = [part.name for part in tables if name not in part.columns]
        if name == label:
            continue
        if name == NO_NAME:
            dropped[name] = ROW_INDEX
        elif name == site:
            dropped[name] = "the site's name"
        elif lacking:
            dropped[name] = f"not in {Path(lacking[0]).name}"
        elif name not in reference.columns:
            is_nested = name in reference.nested
            where = Path(reference.name).name
            dropped[name] = NESTED if is_nested else f"not in {where}"
        else:
            column, reason = _propose_of_sites(name, reference, references, len(table))
            if column is None:
                dropped[name] = reason
            else:
                columns[name] = column
    return columns, dropped


def _propose_of_sites(
    name: str, reference: TextTable, parts: Sequence[TextTable], records: int
) -> tuple[Column | None, str]:
    """`propose_column` of a column that several files have. Each may number its records
    from 1, so an identifier is one at any site.
    """
    column, reason = propose_column(
        name, reference.columns[name], reference.marks.decimal, records
    )
    if len(parts) == 1 or reason.startswith(AN_IDENTIFIER):
        return column, reason
    for table in parts:
        of_site, why = propose_column(
            name, table.columns[name], table.marks.decimal, records
        )
        if of_site is None and why.startswith(AN_IDENTIFIER):
            return None, why
    return column, reason


def _require_columns(table: TextTable, label: str, site: str) -> None:
    for name, option in ((label, "label"), (site, "site")):
        if name and name not in table.columns:
            raise TableError(
                f"Cannot take {name!r} as {option}: {table.name} has the columns "
                f"{', '.join(table.columns)}. Name one of them."
            )
        if not name:
            continue
        column = table.columns[name]
        if column.missing:
            hint = f" {_short_lines(table)}" if table.short else ""
            raise TableError(
                f"Cannot take {name!r} as {option}: {column.missing} of {len(table)} "
                f"records have none, record {column.first_missing + 1} for one. Fill "
                f"it in, or take these records out.{hint}"
            )


def _classes(table: TextTable, label: str) -> tuple[str, ...]:
    counts = table.columns[label].counts
    if not 2 <= len(counts) <= MAX_CLASSES:
        raise TableError(
            f"Cannot take {label!r} as label: it has {len(counts)} different values, "
            f"and classes are 2 to {MAX_CLASSES}. Name another column, or make classes "
            "of it, such as intervals of a number."
        )
    for known, name in _spelled_twice(counts):
        raise TableError(
            f"Cannot take {label!r} as label: {known!r} ({counts[known]} "
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
    name: str, texts: ColumnTexts, decimal: str, records: int
) -> tuple[Column | None, str]:
    """(what a column is, "") or (None, why it is left out), from these values of it."""
    if len(texts.counts) < 2:
        return None, "the same in all records" if texts.counts else "without values"
    pair = _flag(texts)
    if pair:
        return Column("flag", values=pair, missing=texts.missing > 0), ""
    if texts.is_number:
        return _propose_number(name, texts, decimal, records)
    return _propose_category(texts)


def _propose_number(
    name: str, texts: ColumnTexts, decimal: str, records: int
) -> tuple[Column | None, str]:
    numbers = to_numbers(texts.values, frozenset(), decimal)
    missing = texts.missing > 0
    different = len(set(numbers))
    spread = texts.largest - texts.least
    if spread == 0:  # written in several ways: 0.5 and 0.50
        return None, "the same in all records"
    if not np.isfinite(spread):
        return None, "numbers too far apart to be told apart"
    if texts.is_whole and different == len(numbers) > FEW_CODES:
        consecutive = spread == texts.present - 1
        if consecutive or IDENTIFIER.search(name):
            return None, f"{AN_IDENTIFIER}: a number for each record"
    if texts.is_whole and texts.counted and len(texts.counts) <= FEW_CODES:
        codes = tuple(sorted(texts.counts, key=float))
        return Column("category", values=codes, missing=missing), ""
    hardly_twice = different > max(FEW_CODES, UNIQUE * len(numbers))
    if texts.is_whole and hardly_twice and spread >= WIDE_RANGE:
        return None, f"{AN_IDENTIFIER}: a number for each record"
    low, high = _round_range(texts.least, texts.largest)
    shares = np.linspace(0.0, 1.0, 11)
    inner = np.quantile(numbers, shares[1:-1], method="closest_observation")
    bins: tuple[float, ...] = ()
    if records >= MANY_RECORDS:
        bins = _intervals(numbers)
    quantiles = (low, *map(float, inner), high)
    unit = unit_of(name)
    return Column("number", (low, high), quantiles, bins, (), missing, unit), ""


def unit_of(name: str) -> str:
    """The unit that a column's name ends in, or ""."""
    found = NAMED_UNIT.search(name)
    return "" if found is None else next(filter(None, found.groups()))


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


def _flag(texts: ColumnTexts) -> tuple[str, str] | None:
    """(no, yes), if these are two such values."""
    if len(texts.counts) != 2:
        return None
    for no, yes in FLAGS:
        named = {name.casefold(): name for name in texts.counts}
        if set(named) == {no, yes}:
            return named[no], named[yes]
    return None


def _propose_category(texts: ColumnTexts) -> tuple[Column | None, str]:
    present = texts.values
    different = len(set(map(same_name, present)))
    dates = sum(DATE.fullmatch(value) is not None for value in present)
    if dates > len(present) / 2:
        return None, "dates: make numbers of them, such as an age"
    if different > UNIQUE * len(present) and len(present) > FEW_CODES:
        words = sum(len(value.split()) for value in present) / len(present)
        if words >= FREE_TEXT:
            return None, "free text"
        return None, f"{AN_IDENTIFIER}: nearly every value is another"
    if not texts.counted or len(texts.counts) > MAX_VALUES:
        return None, f"{texts.distinct} different values: group them"
    values = tuple(sorted(texts.counts))
    return Column("category", values=values, missing=texts.missing > 0), ""


def _notes(
    tables: Sequence[TextTable], public: TextTable | None, schema: TableSchema
) -> list[str]:
    table = joined_texts(tables)
    files = [*tables] if public is None else [*tables, public]
    notes = [f"{file.name}: {_short_lines(file)}" for file in files if file.short]
    if public is not None:
        extra = [name for name in public.columns if name not in table.columns]
        if extra:
            notes.append(f"{public.name}: not in {table.name}: {', '.join(extra)}")
        if schema.header.label in public.columns:
            notes.append(f"{public.name}: labels of public records are not read")
    notes += [
        f"{name} is written with {marks.delimiter!r}, {marks.decimal!r} and "
        f"{marks.encoding}, as [written] in the schema says"
        for name, marks in schema.written.items()
    ]
    notes += _spelling_notes(table, schema)
    notes += _notes_of_sites(tables, schema)
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
        values[site] = tuple(sorted(table.columns[site].counts))
    return [
        f"{name}: {known!r} and {other!r} look like two spellings of one value"
        for name, named in values.items()
        for known, other in _spelled_twice(named)
    ]


def _notes_of_sites(tables: Sequence[TextTable], schema: TableSchema) -> list[str]:
    """The columns that have values at one site only, which tell whose a record is."""
    site = schema.header.site
    if len(tables) == 1 and (not site or len(tables[0].columns[site].counts) < 2):
        return []
    notes: list[str] = []
    for name in schema.columns:
        filled = _sites_with_values(tables, name)
        if len(filled) == 1:
            notes.append(
                f"{name}: only {min(filled)} has values, so the column says whose a "
                "record is. Take it out of the schema, unless all sites will have it"
            )
    return notes


def _sites_with_values(tables: Sequence[TextTable], name: str) -> set[str]:
    """The files with a value in this column, or the first two sites of one file."""
    if len(tables) == 1:
        return tables[0].columns[name].sites
    return {table.name for table in tables if table.columns[name].present}


def _comments(
    schema: TableSchema, tables: Sequence[TextTable], public: TextTable | None
) -> list[str]:
    if public is not None:
        source = f"{len(public)} public records of {Path(public.name).name}"
    else:
        files = ", ".join(Path(table.name).name for table in tables)
        source = f"the private records of {files}: replace them by what is public"
    return [
        "What each column of the table is. Every record is encoded only by this file,",
        "so it is public, and alike at all sites. Look through it, and change what is "
        "wrong.",
        f"Ranges and values come from {source}.",
        "Kinds: number (values outside its range count as its ends), category (any",
        'other value is "another value"), flag (no, then yes). missing = true: a',
        "missing or unreadable value gets an extra column.",
    ]


def _data_choices(
    files: Sequence[Path],
    tables: Sequence[TextTable],
    schema: TableSchema,
    test_fraction: float,
) -> list[Choice]:
    kinds = Counter(column.kind for column in schema.columns.values())
    kinds_text = ", ".join(f"{count} of kind {kind}" for kind, count in kinds.items())
    records = sum(map(len, tables))
    what = (
        f"{records:,} records, {kinds_text}, of which {test_fraction:.0%} are held out"
    )
    classes = Choice("data.classes", list(schema.header.classes), "the label's values")
    if len(files) == 1:
        return [Choice("data.path", str(files[0]), what), classes]
    folder = Path(os.path.commonpath([file.parent.absolute() for file in files]))
    names = [str(file.absolute().relative_to(folder)) for file in files]
    options = {"schema": "schema.toml", "files": names}
    if not any(file.is_absolute() for file in files):
        folder = Path(os.path.relpath(folder))
    return [
        Choice("data.path", str(folder), what),
        Choice("data.options", options, "each file is a site's"),
        classes,
    ]


def _public_choices(public: Path | None, reference: TextTable | None) -> list[Choice]:
    if public is None or reference is None:
        return [
            Choice("aux.source", "schema", "no public records: drawn from the schema"),
            Choice("aux.path", "schema.toml", "column by column, of no one"),
            Choice("aux.options", {"rows": DRAWN_ROWS}, "of them"),
        ]
    return [Choice("aux.path", str(public), f"{len(reference):,} public records")]


def _head_choices(
    tables: Sequence[TextTable],
    schema: TableSchema,
    public: TextTable | None,
    test_fraction: float,
) -> list[Choice]:
    private = round(sum(map(len, tables)) * (1 - test_fraction))
    return [
        Choice("privacy.expected_records", private, "of all clients, without the test"),
        *release_choices(private, len(schema.header.classes), len(public or ())),
    ]


def release_choices(
    records: int, classes: int, public: int, epsilon: float = 1.0
) -> list[Choice]:
    """The network, and what a site sends, by how many records all sites have together.

    Few records carry few directions, and the public covariance is better than a noisy
    one of their own. Of two classes, one sum of their difference has the least noise.
    With many records it is the other way round. Records drawn from a schema do not say
    which directions matter, so all of them are taken (`studies.tables`). A map that
    public rows train helps the signed sum, unless there is much noise or it has too few
    rows: heart disease, four splits, accuracy with `linear` and `tabular` in per cent,

        public rows      20          50          100
        ε = .3       77.9  75.2  77.5  79.8  78.2  81.0
        ε = 1        78.0  78.3  80.0  79.1  81.5  81.7

    Args:
        records: Those of all sites, without the test.
        classes: How many classes there are.
        public: How many public rows there are.
        epsilon: Of what a site sends.
    """
    if records < FEW_RECORDS and classes == 2 and public:
        why = f"a signed sum: {records:,} records of two classes are few"
        network: list[Choice] = []
        if epsilon >= LEAST_EPSILON_OF_MAP and public >= LEAST_ROWS_OF_MAP:
            network = [Choice("prototypes", ["tabular"], "a map from public rows")]
        return [
            *network,
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


def _clients(
    files: Sequence[Path], tables: Sequence[TextTable], site: str, clients: int
) -> list[Choice]:
    if len(files) > 1:
        names = names_of_files(files)
        counts = Counter(dict(zip(names, map(len, tables), strict=True)))
        where = "each file"
    elif site:
        counts = tables[0].columns[site].counts
        names = sorted(counts)
        where = f"the column {site}"
    else:
        share = len(tables[0]) / clients
        return [Choice("data.clients", clients, f"about {share:,.0f} records each")]
    sizes = ", ".join(f"{name} {counts[name]:,}" for name in names[:10])
    return [
        Choice("data.partition", "given", f"{where}: {sizes} records"),
        Choice("data.clients", len(names), "as many as there are sites"),
        Choice("federation.sites", site_names(names), "their names"),
    ]


def names_of_files(files: Sequence[Path]) -> list[str]:
    """The sites by their files: `oslo` of `oslo.csv`, and of `oslo/patients.csv` where
    several have this name.
    """
    stems = [file.name.partition(".")[0] or file.name for file in files]
    if len(set(stems)) == len(stems):
        return stems
    folders = [file.absolute().parent.name for file in files]
    if len(set(folders)) == len(folders):
        return folders
    return [f"{folder}-{stem}" for folder, stem in zip(folders, stems, strict=True)]


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
