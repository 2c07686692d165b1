"""Tables: a .csv, a .parquet or a DataFrame whose columns a schema describes, as records
of numbers.

A record is read and encoded by itself (`data.table_files`, `data.table_encoding`).
Nothing is scaled, filled in or numbered in the light of other records: what a column
holds is in the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.core import here
from fedaux.core.rng import numpy_stream
from fedaux.data.labels import DeclaredClasses, factorize
from fedaux.data.records import UNDECLARED, Corpus, Records, RecordsError
from fedaux.data.table_encoding import (
    bins_of_values,
    encode,
    encode_compactly,
    plain_spelling,
    same_name,
)
from fedaux.data.table_files import (
    RECORDS_AT_ONCE,
    TextColumns,
    all_columns,
    cell_text,
    count_records,
    file_columns,
    read_blocks,
    stripped,
)
from fedaux.data.table_rows import Codes, EncodedRows, Floats
from fedaux.data.table_schema import Column, SchemaError, TableSchema

# of a schema's columns, in the records that `schema_rows` draws
DRAWN_MISSING = 0.1
DRAWN = "schema"  # the source of such records
# bytes as an array, from which a table is held in less memory
LARGE_TABLE = 2**28


@dataclass(frozen=True)
class _Wanted:
    """The columns of a file that are read, by what they are for, or "" for none."""

    schema: TableSchema
    label: str
    site: str
    person: str

    @classmethod
    def of(cls, schema: TableSchema, labels: bool, person: str, of_site: bool) -> Self:
        """Those of records with or without labels. A site's own records name no site."""
        header = schema.header
        label = header.label if labels else ""
        site = header.site if labels and not of_site else ""
        return cls(schema, label, site, person)

    @property
    def names(self) -> list[str]:
        """All columns, features first."""
        return [*self.schema.columns, self.label, self.site, self.person]

    def positions(self, names: Sequence[str], where: str) -> list[int]:
        """Where each of `names` is in the file; −1 for "", and for a site that is not
        there, as in a site's own file.
        """
        twice = sorted({name for name in names if name and names.count(name) > 1})
        if twice:
            raise RecordsError(
                f"Cannot read {where}: it has the column {', '.join(twice)} twice. "
                "Give each column another name."
            )
        missing = [
            name
            for name in self.names
            if name and name not in names and name != self.site
        ]
        if len(missing) > 1 and len(names) == 1:
            raise RecordsError(
                f"Cannot read {where}: its first line is one column, {names[0]!r}, by "
                f"the schema's delimiter {self.schema.header.delimiter!r}. Save the "
                "file with this delimiter."
            )
        if missing:
            raise RecordsError(
                f"Cannot read {where}: there is no column {', '.join(missing)}, which "
                f"the schema has. There is {', '.join(names)}. Name the column so, add "
                "it without values, or take it out of the schema at all sites."
            )
        place = {name: position for position, name in enumerate(names)}
        return [place.get(name, -1) if name else -1 for name in self.names]


def table(
    path: Path,
    schema: str | Path | TableSchema = "",
    labels: bool = True,
    test: str = "",
    person: str = "",
    files: Sequence[str] = (),
    declared: Sequence[str] = (),
) -> Corpus:
    """A .csv, .csv.gz or .parquet whose columns `schema`, a file of `TableSchema`, describes.

    A folder has such a file for each site, in the order of `files`, or of their names.
    `labels=False` is for public records, `test` is a second file, `person` the column
    of persons. With `declared` classes, those of a site's own records, any line is a
    record, and a missing or undeclared label is `UNDECLARED`. The column of sites is
    not looked at.
    """
    described = open_schema(schema)
    if declared:
        described.require_confirmed(path)
    classes = tuple(declared) or described.header.classes
    if path.is_dir():
        if declared:
            raise RecordsError(
                f"Cannot read {path} as a site's records: it is a folder, and a site "
                "has one file. Name the file in data.path."
            )
        train = _read_folder(path, files, described, labels, person)
    else:
        train = _read(path, described, labels, person, tuple(declared))
    train = _held(train)
    if not test or declared:
        return replace(train, classes=classes)
    tested = _held(_read(Path(test).expanduser(), described, labels, person, ()))
    return replace(train, test=tested.train, classes=classes)


def _held(corpus: Corpus) -> Corpus:
    """The records as an array, which is read faster, unless it would be large."""
    rows = corpus.train.x
    if rows.nbytes > LARGE_TABLE:
        return corpus
    return replace(corpus, train=replace(corpus.train, x=np.asarray(rows)))


def _read_folder(
    folder: Path,
    files: Sequence[str],
    schema: TableSchema,
    labels: bool,
    person: str,
) -> Corpus:
    """The records of all files of a folder, each of which is a site's."""
    paths = _of_sites(folder, files)
    alone = replace(schema, header=replace(schema.header, site=""))
    parts = [_read(path, alone, labels, person, ()).train for path in paths]
    rows = EncodedRows.joined([cast("EncodedRows", part.x) for part in parts])
    records = Records(cast("NDArray[Any]", rows))
    if labels:
        records = replace(records, y=np.concatenate([part.labels for part in parts]))
    if person:
        records = replace(records, person=_of_several([p.persons for p in parts]))
    site = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return Corpus(records, site=site, schema=schema)


def _of_sites(folder: Path, files: Sequence[str]) -> list[Path]:
    """The tables of the sites, in the order of `files`, or of their names."""
    return [folder / name for name in files] or table_files(folder)


def _of_several(persons: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Ids of persons, who are others at another site."""
    highest = [int(ids.max(initial=-1)) + 1 for ids in persons]
    starts = np.cumsum([0, *highest[:-1]])
    return np.concatenate(
        [start + ids for start, ids in zip(starts, persons, strict=True)]
    )


def table_files(folder: Path) -> list[Path]:
    """The tables of a folder, in the order of their names."""
    found = [
        path
        for path in sorted(folder.iterdir())
        if path.name.lower().endswith((".csv", ".csv.gz", ".parquet"))
        and not path.name.startswith(".")
    ]
    if not found:
        raise RecordsError(
            f"Cannot read {folder}: there is no .csv and no .parquet in it. Name a "
            "table, or a folder with a table for each site."
        )
    return found


def open_schema(schema: str | Path | TableSchema) -> TableSchema:
    """A schema, or the one in a file."""
    if isinstance(schema, TableSchema):
        return schema
    if not str(schema):
        raise SchemaError(
            "Cannot read a table: it has no schema. Name it in [data] and [aux], "
            'options = {schema = "schema.toml"}. `fedaux init table --data YOUR.csv '
            "--label COLUMN` writes both."
        )
    return TableSchema.load(schema)


def schema_path(source: DataConfig | AuxConfig) -> str:
    """The file of the schema by which a source's tables are read, or "" for others."""
    if source.source == "schema":
        return source.path
    if source.source == "table":
        return str(dict(source.options).get("schema", ""))
    return ""


def schema_of(source: DataConfig | AuxConfig) -> TableSchema | None:
    """The schema by which a source's tables are read, or None for other records."""
    path = schema_path(source)
    return open_schema(path) if path else None


def is_drawn(aux: AuxConfig) -> bool:
    """Whether public rows are drawn from a schema (`schema_rows`)."""
    return here.readable(aux.source) == DRAWN


def schema_of_records(source: DataConfig) -> TableSchema | None:
    """`schema_of`, also of tables that were handed over in Python."""
    corpus = here.find(source.source)
    return schema_of(source) if corpus is None else corpus().schema


def describes_private_records(source: DataConfig) -> bool:
    """Whether the ranges and values of a table's schema may be those of private records,
    which no noise protects.
    """
    schema = schema_of_records(source)
    return schema is not None and not schema.header.confirmed


def _read(
    file: Path,
    schema: TableSchema,
    labels: bool,
    person: str,
    declared: tuple[str, ...],
) -> Corpus:
    schema = schema.for_file(file)
    header = schema.header
    names = file_columns(file, header)
    wanted = _Wanted.of(schema, labels, person, bool(declared))
    positions = wanted.positions(names, str(file))
    count = count_records(file, header, bool(declared))
    used = {position for position in positions if position >= 0}
    blocks = read_blocks(file, header, used, bool(declared))
    return _corpus(blocks, count, positions, wanted, declared, str(file))


def table_bins(
    file: Path,
    schema: TableSchema,
    edges: Mapping[str, Sequence[float]],
    every_line: bool,
    files: Sequence[str] = (),
) -> NDArray[np.uint16]:
    """Return the bin of each record in some columns of a table, for counts.

    Two bytes for each record and column, however many bins there are: whoever asks for
    counts chooses the bins, and may be hostile.

    Args:
        file: The table, or a folder with one of each site.
        schema: Its schema.
        edges: The columns to count by, with the edges of those of numbers.
        every_line: Whether any line is a record, as at a real site.
        files: Those of a folder, in their order. Without any, it is that of their names.

    Returns:
        (columns, records), with the bins of `bins_of_values`.
    """
    if file.is_dir():
        parts = [
            table_bins(path, schema, edges, every_line)
            for path in _of_sites(file, files)
        ]
        return np.concatenate(parts, axis=1)
    schema = schema.for_file(file)
    header = schema.header
    columns = {name: schema.columns[name] for name in edges}
    wanted = _Wanted(replace(schema, columns=columns), "", "", "")
    positions = wanted.positions(file_columns(file, header), str(file))[: len(columns)]
    count = count_records(file, header, every_line)
    bins = np.zeros((len(columns), count), dtype=np.uint16)
    start = 0
    for texts in read_blocks(file, header, set(positions), every_line):
        end = start + len(texts[positions[0]])
        for place, (name, column) in enumerate(columns.items()):
            values = stripped(texts[positions[place]])
            bins[place, start:end] = bins_of_values(column, values, edges[name], header)
        start = end
    return bins


def column_of(file: Path, schema: TableSchema, name: str) -> list[str]:
    """The values of any column of a file, in the order of its records."""
    columns = all_columns(file, schema.for_file(file).header)
    if name not in columns:
        raise RecordsError(
            f"Cannot read {file}: there is no column {name}. Choose from "
            f"{', '.join(columns)}."
        )
    return columns[name]


def from_frame(
    frame: Any,
    schema: str | Path | TableSchema,
    labels: bool = True,
    person: str = "",
    declared: Sequence[str] = (),
) -> Corpus:
    """Records of a DataFrame of pandas, or of anything else that has named columns.

    Args:
        frame: The table: a DataFrame, anything with `columns` and `frame[name]`, a
            structured array, a dictionary of arrays or a list of dictionaries.
        schema: Its schema, or the file of it.
        labels: Whether it has the schema's label, which public records do not need.
        person: The column with the person of each record, if there is one.
        declared: At a real site, the declared classes.

    Returns:
        The records, with the site of each where the schema names a column for it.
    """
    described = open_schema(schema)
    header = described.header
    given = as_frame(frame)
    if given is None:
        raise RecordsError(
            f"Cannot read the table: a {type(frame).__name__} has no named columns. "
            "Give a DataFrame, or a dictionary with an array for each column."
        )
    frame = given
    if declared:
        described.require_confirmed(Path("the table"))
    wanted = _Wanted.of(described, labels, person, bool(declared))
    named = {str(name): name for name in frame.columns}
    names = [str(name) for name in frame.columns]
    positions = wanted.positions(names, "the table")
    columns = []
    for name in wanted.names:
        if name and name in names:
            values = frame[named[name]]
            columns.append([cell_text(value, header.decimal) for value in values])
    used = [position for position in positions if position >= 0]
    places = [used.index(position) if position >= 0 else -1 for position in positions]
    blocks = (
        [column[start : start + RECORDS_AT_ONCE] for column in columns]
        for start in range(0, len(frame), RECORDS_AT_ONCE)
    )
    corpus = _corpus(blocks, len(frame), places, wanted, tuple(declared), "the table")
    return replace(_held(corpus), classes=tuple(declared) or header.classes)


@dataclass(frozen=True)
class _Rows:
    """Dictionaries, one for each record, as what `from_frame` reads: a value that one of
    them lacks is missing.
    """

    rows: Sequence[Mapping[str, Any]]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __getitem__(self, name: str) -> list[Any]:
        return [row.get(name) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class _NamedArrays:
    """Arrays by the names of their columns, as what `from_frame` reads."""

    arrays: Mapping[str, Sequence[Any]]

    @property
    def columns(self) -> list[str]:
        return list(self.arrays)

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.arrays[name]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values()), ()))


def as_frame(records: Any) -> Any:
    """A DataFrame as it is, and a structured array, a dictionary of arrays and a list of
    dictionaries as what `from_frame` reads; None for anything else.
    """
    if hasattr(records, "columns"):
        return records
    if is_named_arrays(records):
        arrays = {str(name): _readable(values) for name, values in records.items()}
        lengths = {name: len(values) for name, values in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise RecordsError(
                f"Cannot read the table: its columns have {lengths} values. Give each "
                "record one in every column."
            )
        return _NamedArrays(arrays)
    names = getattr(getattr(records, "dtype", None), "names", None)
    if names and records.ndim == 1:
        return _NamedArrays({name: _readable(records[name]) for name in names})
    if is_rows(records):
        return _Rows(records)
    return None


def is_named_arrays(records: Any) -> bool:
    """Whether this is a dictionary with an array or a list for each column."""
    return (
        isinstance(records, Mapping)
        and bool(records)
        and all(_is_column(values) for values in records.values())
    )


def is_rows(records: Any) -> bool:
    """Whether this is a list with a dictionary of values for each record."""
    is_list = isinstance(records, (list, tuple)) and bool(records)
    return is_list and all(
        isinstance(row, Mapping) and not is_named_arrays(row) for row in records
    )


def _is_column(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return True
    return getattr(values, "ndim", 0) == 1 or hasattr(values, "iloc")


def _readable(values: Any) -> Sequence[Any]:
    """A column without NumPy's bytes, which files have in place of texts."""
    if getattr(getattr(values, "dtype", None), "kind", "") == "S":
        return list(np.char.decode(values, "utf-8", "replace"))
    return list(values)


def _corpus(
    blocks: Iterable[TextColumns],
    count: int,
    positions: Sequence[int],
    wanted: _Wanted,
    declared: tuple[str, ...],
    where: str,
) -> Corpus:
    """Encode `count` records, of which `positions` are the wanted columns."""
    schema = wanted.schema
    features = positions[: len(schema.columns)]
    label, site, person = positions[len(schema.columns) :]
    names: list[list[str]] = [[], [], []]

    def encoded() -> Iterator[tuple[Floats, Codes]]:
        for texts in blocks:
            for known, position in zip(names, (label, site, person), strict=True):
                if position >= 0:
                    known += stripped(texts[position])
            columns = [stripped(texts[position]) for position in features]
            yield encode_compactly(schema, columns)

    rows = EncodedRows.of(schema, encoded(), count)
    records = Records(cast("NDArray[Any]", rows))
    if label >= 0:
        records = replace(records, y=_labels(names[0], wanted, declared, where))
    if person >= 0:
        records = replace(records, person=factorize(map(same_name, names[2])))
    sites = _sites(names[1], wanted, where) if site >= 0 else None
    return Corpus(records, site=sites, schema=schema)


def _labels(
    names: Sequence[str], wanted: _Wanted, declared: tuple[str, ...], where: str
) -> NDArray[np.int64]:
    classes = DeclaredClasses.of(declared or wanted.schema.header.classes)
    labels = [classes.by_name(name) for name in names]
    if not declared and UNDECLARED in labels:
        first = labels.index(UNDECLARED)
        known = ", ".join(wanted.schema.header.classes)
        alike = {plain_spelling(name): name for name in wanted.schema.header.classes}
        meant = alike.get(plain_spelling(names[first]))
        if meant is not None:
            known += f": write it as {meant!r}"
        raise RecordsError(
            f"Cannot read {where}: record {first + 1} has {names[first]!r} as "
            f"{wanted.label}, and the schema's classes are {known}. Correct the "
            "record, or take it out."
        )
    return np.array(labels, dtype=np.int64)


def _sites(names: Sequence[str], wanted: _Wanted, where: str) -> NDArray[np.int64]:
    """The number of each record's site, in the order of their names."""
    missing = set(wanted.schema.header.missing)
    for number, name in enumerate(names, 1):
        if name in missing:
            raise RecordsError(
                f"Cannot read {where}: record {number} has no {wanted.site}. Correct "
                "the record, or take it out."
            )
    plain = list(map(same_name, names))
    order = {name: place for place, name in enumerate(sorted(set(plain)))}
    return np.array([order[name] for name in plain], dtype=np.int64)


def schema_rows(path: Path | TableSchema, rows: int = 1000) -> Corpus:
    """Records that are drawn from a schema alone, one column after the other: public
    data for a table without any. They are no one's.
    """
    schema = open_schema(path)
    rng = numpy_stream(0, "schema")
    columns = [
        _drawn(column, rows, schema.header.decimal, rng)
        for column in schema.columns.values()
    ]
    return Corpus(Records(encode(schema, columns)))


def _drawn(
    column: Column, count: int, decimal: str, rng: np.random.Generator
) -> list[str]:
    if column.kind == "number":
        points = column.quantiles or column.range
        shares = np.linspace(0.0, 1.0, len(points))
        numbers = np.interp(rng.uniform(size=count), shares, points)
        texts = [repr(float(number)).replace(".", decimal) for number in numbers]
    else:
        drawn = rng.integers(len(column.values), size=count)
        texts = [column.values[index] for index in drawn]
    if column.missing:
        absent = rng.uniform(size=count) < DRAWN_MISSING
        texts = ["" if gone else text for text, gone in zip(texts, absent, strict=True)]
    return texts
