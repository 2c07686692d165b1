"""Tables among the arguments of `fedaux.run`: DataFrames, named arrays and files, whose
columns a schema describes. Without one, it is proposed as `fedaux init table` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath
from typing import Any

from fedaux.config.methods import find_method
from fedaux.config.parsing import ConfigError
from fedaux.config.sections import AuxConfig, DataConfig, PrivacyConfig
from fedaux.data.objects import DataError, joined, name_corpus, with_test
from fedaux.data.records import Corpus
from fedaux.data.table_choices import (
    DRAWN_ROWS,
    names_of_files,
    propose_schema,
    release_choices,
    site_names,
)
from fedaux.data.table_encoding import same_name
from fedaux.data.table_schema import TableSchema
from fedaux.data.table_texts import (
    TextTable,
    column_of_frame,
    read_texts,
    texts_of_frame,
)
from fedaux.data.tables import (
    DRAWN,
    as_frame,
    column_of,
    from_frame,
    is_named_arrays,
    is_rows,
    open_schema,
    schema_rows,
    table_files,
)
from fedaux.data.tables import table as read_table

SETTINGS = frozenset(field.name for field in (*fields(DataConfig), *fields(AuxConfig)))


@dataclass(frozen=True)
class TableArguments:
    """What the arguments say about the columns of tables.

    Attributes:
        label: The column of the class.
        site: The column that says whose a record is.
        schema: The schema, or its file. None proposes one.
    """

    label: str = ""
    site: str = ""
    schema: str | PurePath | TableSchema | None = None

    @property
    def given(self) -> bool:
        return bool(self.label or self.site or self.schema is not None)


def has_named_columns(value: Any) -> bool:
    """Whether this is a DataFrame, named arrays, or the path of a table."""
    if isinstance(value, (str, PurePath)):
        return is_table_path(Path(value).expanduser())
    if isinstance(value, Mapping):
        return is_named_arrays(value) and not set(value) <= SETTINGS
    if hasattr(value, "column_names"):  # a dataset of Hugging Face
        return False
    return as_frame(value) is not None


def is_table_path(path: Path) -> bool:
    """Whether a path is that of a table's file, by its name."""
    return path.name.lower().endswith((".csv", ".csv.gz", ".parquet"))


def by_schema(value: Any, schema: TableSchema, labels: bool = True) -> Any:
    """A table as the records that the schema makes of it, anything else as it is."""
    if isinstance(value, (str, PurePath)) or not has_named_columns(value):
        return value
    return from_frame(value, schema, labels)


def parts_of(value: Any) -> list[Any]:
    """A table, or those of a list or a folder, one of each site."""
    if isinstance(value, list) and not is_rows(value):
        return value
    if isinstance(value, (str, PurePath)):
        path = Path(value).expanduser()
        return list(table_files(path)) if path.is_dir() else [path]
    return [value]


def set_tables(
    settings: dict[str, Any],
    data: Any,
    public: Any,
    test: Any,
    arguments: TableArguments,
) -> None:
    """Put tables, read by their schema, into the sections `data` and `aux`, with the
    settings that `fedaux init table` would choose.
    """
    parts = parts_of(data)
    _require_tables(parts, "data")
    if not arguments.label and arguments.schema is None:
        raise DataError(
            "Cannot read data: it is a table, and nothing says which column is the "
            f"class. Name it: label='…', one of {', '.join(_columns_of(parts[0]))}."
        )
    if public is not None:
        _require_tables([public], "public")
    schema, notes = _schema(parts, public, arguments)
    corpora = [_read(part, schema) for part in parts]
    apart = len(parts) > 1 or (isinstance(data, list) and not is_rows(data))
    corpus = joined(corpora, "data") if apart else corpora[0]
    if test is not None:
        tested = parts_of(test)
        _require_tables(tested, "test")
        corpora = [_read(part, schema) for part in tested]
        corpus = with_test(
            corpus, corpora[0] if len(tested) == 1 else joined(corpora, "test")
        )
    sites = _files_or_clients(parts) if apart else _column_of_sites(parts[0], corpus)
    _set_data(settings, replace(corpus, notes=tuple(notes)), sites)
    rows = _set_public(settings, public, schema)
    _set_head(settings, corpus, rows)


def _require_tables(parts: list[Any], what: str) -> None:
    if not parts:
        raise DataError(
            f"Cannot use {what}: an empty list has data of no client. Give one entry "
            "for each client."
        )
    for part in parts:
        if isinstance(part, (str, PurePath)) and not has_named_columns(part):
            raise DataError(
                f"Cannot read {part} as a table: its name ends in neither .csv nor "
                ".parquet. Give such a file, or a DataFrame, such as "
                "pandas.read_excel(…)."
            )
        if not has_named_columns(part):
            raise DataError(
                f"Cannot read {what}: with label='…', site='…' or schema='…' it is a "
                f"table, and a {type(part).__name__} has no named columns. Give a "
                "DataFrame, a .csv or .parquet, a dictionary of arrays, or a list with "
                "one of them for each client."
            )


def _columns_of(part: Any) -> list[str]:
    return [name for name in _texts(part, "data").columns if name]


def _texts(part: Any, name: str, label: str = "", site: str = "") -> TextTable:
    if isinstance(part, (str, PurePath)):
        return read_texts(Path(part).expanduser(), label, site)
    return texts_of_frame(as_frame(part), name, label, site)


def _schema(
    parts: list[Any], public: Any, arguments: TableArguments
) -> tuple[TableSchema, list[str]]:
    """(schema, notes), given or proposed."""
    if arguments.schema is not None:
        schema = arguments.schema
        described = open_schema(str(schema) if isinstance(schema, PurePath) else schema)
        header = described.header
        label = arguments.label or header.label
        site = "" if len(parts) > 1 else arguments.site or header.site
        for option, name in (("label", label), ("site", site)):
            if name in described.columns:
                raise DataError(
                    f"Cannot read data with {option}={name!r}: the schema has it among "
                    "the columns that a model learns from. Take it out of [columns], "
                    f"or leave {option} out."
                )
        return replace(described, header=replace(header, label=label, site=site)), []
    names = ["data"]
    if len(parts) > 1:
        names = [f"data[{number}]" for number in range(len(parts))]
    label, site = arguments.label, arguments.site
    tables = [
        _texts(part, name, label, site) for part, name in zip(parts, names, strict=True)
    ]
    reference = None if public is None else _texts(public, "public")
    schema, notes = propose_schema(tables, label, site, reference)
    left_out = [
        f"{name or 'the first column'} ({why})" for name, why in schema.dropped.items()
    ]
    if left_out:
        notes.append(f"columns that are left out: {', '.join(left_out)}")
    return schema, notes


def _read(part: Any, schema: TableSchema, labels: bool = True) -> Corpus:
    if isinstance(part, (str, PurePath)):
        return read_table(Path(part).expanduser(), schema, labels)
    return from_frame(part, schema, labels)


def _set_data(settings: dict[str, Any], corpus: Corpus, sites: list[str]) -> None:
    """Set the private records, and the clients: their names, "" for each without one,
    or none where records are to be split.
    """
    section = dict(settings.get("data", {}))
    if sites:
        if section.get("clients", len(sites)) != len(sites):
            raise ConfigError(
                f"Cannot use clients = {section['clients']}: data are those of "
                f"{len(sites)} clients. Leave clients out."
            )
        section |= {"partition": "given", "clients": len(sites)}
        federation = dict(settings.get("federation", {}))
        if all(sites) and not federation.get("sites"):
            settings["federation"] = federation | {"sites": site_names(sites)}
    name = name_corpus(corpus, "data")
    settings["data"] = section | {"source": name, "path": "", "options": {}}


def _files_or_clients(parts: list[Any]) -> list[str]:
    """The names of files, "" for other tables."""
    if all(isinstance(part, (str, PurePath)) for part in parts):
        return names_of_files([Path(part) for part in parts])
    return [""] * len(parts)


def _column_of_sites(part: Any, corpus: Corpus) -> list[str]:
    """The sites that a column names, or [] if there is no such column."""
    if corpus.site is None or corpus.schema is None:
        return []
    name = corpus.schema.header.site
    if isinstance(part, (str, PurePath)):
        column = column_of(Path(part).expanduser(), corpus.schema, name)
    else:
        column = column_of_frame(as_frame(part), name)
    return sorted(set(map(same_name, column)))


def _set_public(settings: dict[str, Any], public: Any, schema: TableSchema) -> int:
    """Set public records as they are given, or drawn from the schema. Return how many
    are real.
    """
    count = 0
    section = dict(settings.get("aux", {}))
    fraction = section.get("fraction", AuxConfig.fraction)
    if public is not None:
        corpus = _read(public, schema, labels=False)
        count = len(corpus.train)
        name = name_corpus(corpus, "public")
    elif section.get("source") or fraction != AuxConfig.fraction:
        return 0  # what someone has set, such as a share of the private records
    else:
        name = name_corpus(schema_rows(schema, DRAWN_ROWS), DRAWN)
    settings["aux"] = section | {"source": name, "path": "", "options": {}}
    return count


def _set_head(settings: dict[str, Any], corpus: Corpus, public: int) -> None:
    """What a private head sends, where nothing is set."""
    method = settings.get("method", "fedaux")
    row = find_method(method) if isinstance(method, str) else method
    privacy = dict(settings.get("privacy", {}))
    if not row.analytic or row.sends != "releases":
        return
    chosen = {"scorer", "embedding_dim"} & set(privacy)
    held_out = 0.0 if corpus.test is not None else DataConfig.test_fraction
    held_out = settings["data"].get("test_fraction", held_out)
    records = round(len(corpus.train) * (1 - held_out))
    epsilon = privacy.get("epsilon", PrivacyConfig.epsilon)
    for choice in release_choices(records, len(corpus.classes), public, epsilon):
        section, _, key = choice.key.rpartition(".")
        if not section and "prototypes" not in settings:
            settings[key] = choice.value
        if section and not chosen:
            privacy[key] = choice.value
    settings["privacy"] = privacy
