"""From the keywords of `fedaux.run` to a `Config`: arrays, modules and methods become
names that it can hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from torch import nn

from fedaux.config.methods import Method
from fedaux.config.parsing import ConfigError, keys_of, set_key, to_plain, type_hints
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config, network_for_numbers
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.core import here
from fedaux.core.errors import unknown_name
from fedaux.data.image_folders import subfolders
from fedaux.data.objects import (
    DataError,
    as_corpus,
    joined,
    name_corpus,
    source_of,
    with_test,
)
from fedaux.data.records import Corpus, Records, is_table
from fedaux.data.sources import SOURCES, open_source
from fedaux.data.table_schema import TableSchema
from fedaux.runs.table_arguments import (
    TableArguments,
    by_schema,
    has_named_columns,
    parts_of,
    set_tables,
)

# keywords that are no settings
OBJECTS = ("data", "public", "test", "model", "size", "label", "site", "schema")
# to which the images of a folder are resized where nothing else is said
IMAGE_SIZE = 32
LONGEST_PATH_PART = 255  # of a file; a longer text is no path


def make_config(
    method: str | Method | Config = "fedaux",
    *,
    data: Any = None,
    public: Any = None,
    test: Any = None,
    model: Any = None,
    size: int | None = None,
    label: str = "",
    site: str = "",
    schema: str | PurePath | TableSchema | None = None,
    **settings: Any,
) -> Config:
    """Return the validated configuration that these arguments of `fedaux.run`, which
    explains them, describe.
    """
    table: dict[str, Any] = {}
    if isinstance(method, Config):
        table = method.to_dict()
    else:
        table["method"] = method_name_of(method)
    for key, value in settings.items():
        _set(table, key, value)
    if isinstance(data, Corpus) and data.schema is not None:
        test = by_schema(test, data.schema)
        public = by_schema(public, data.schema, labels=False)
    arguments = TableArguments(label, site, schema)
    if _are_tables(data, arguments):
        for section in ("data", "aux", "privacy", "federation"):
            if section in table:
                table[section] = _section(table, section)
        if isinstance(public, AuxConfig) or (
            isinstance(public, Mapping) and not has_named_columns(public)
        ):
            _set_public(table, public, size)
            public = None
        set_tables(table, data, public, test, arguments)
        public = None
    elif arguments.given:
        raise ConfigError(
            "Cannot use label, site and schema: they are about the columns of a table. "
            "Give it: data=frame, or data='registry.csv'."
        )
    elif data is not None:
        _set_data(table, data, test, size)
    elif test is not None:
        raise ConfigError(
            "Cannot use test: it belongs to data that are given with it. Call run(…, "
            "data=(x, y), test=(x_test, y_test))."
        )
    if public is not None:
        _set_public(table, public, size)
    if model is not None:
        models = model if isinstance(model, (list, tuple)) else [model]
        table["prototypes"] = [_prototype(network) for network in models]
    config = Config.from_dict(table)
    if "prototypes" in table or not _has_numbers(config):
        return config
    network = network_for_numbers(config.frozen_features)
    return replace(config, prototypes=(PrototypeSpec(network),))


def _are_tables(data: Any, arguments: TableArguments) -> bool:
    """Whether data are tables: DataFrames and named arrays always are, and files where
    something says what their columns are.
    """
    if data is None or isinstance(data, (Corpus, Records, DataConfig, tuple)):
        return False
    if isinstance(data, Mapping) and not has_named_columns(data):
        return False
    if arguments.given:
        return True
    if isinstance(data, (str, PurePath)):  # else a file of texts
        return False
    return any(
        has_named_columns(part)
        for part in parts_of(data)
        if not isinstance(part, (str, PurePath))
    )


def _has_numbers(config: Config) -> bool:
    """Whether data that were handed over are rows of numbers."""
    corpus = here.find(config.data.source)
    return corpus is not None and is_table(corpus().train.x)


def method_name_of(method: str | Method) -> str:
    """The name of a method. A `Method` gets one for this session."""
    if isinstance(method, Method):
        return here.add(method.label, method, repr(method))
    if not isinstance(method, str):
        raise ConfigError(
            f"Cannot use the method {method!r}: it must be a name such as 'fedaux', a "
            "fedaux.Method or a fedaux.Config. Give one of them."
        )
    return method


def _set(table: dict[str, Any], key: str, value: Any) -> None:
    """A setting by its name: of the whole, or one that a single section has."""
    hints = type_hints(Config)
    if key in hints:
        before = table.get(key)
        is_section = is_dataclass(hints[key])
        if is_section and isinstance(value, Mapping) and isinstance(before, Mapping):
            table[key] = {**before, **value}  # parts of a section
        elif is_dataclass(value) and not isinstance(value, PrototypeSpec):
            table[key] = to_plain(value)
        else:
            table[key] = value
        return
    paths = [path for path in keys_of(Config) if path.rpartition(".")[2] == key]
    if len(paths) > 1:
        section, _, leaf = paths[1].rpartition(".")
        raise ConfigError(
            f"Cannot set {key}: it is not one setting and may be {', '.join(paths)}. "
            f"Write {section}={{{leaf!r}: …}}."
        )
    if not paths:
        leaves = [path.rpartition(".")[2] for path in keys_of(Config)]
        keywords = dict.fromkeys([*OBJECTS, *hints, *leaves])
        raise ConfigError(str(unknown_name("keyword", key, keywords)))
    set_key(table, paths[0], value, key)


def _set_data(table: dict[str, Any], data: Any, test: Any, size: int | None) -> None:
    section = _section(table, "data")
    if isinstance(data, (Mapping, DataConfig)):
        if test is not None:
            raise ConfigError(
                "Cannot use test: it goes with data that are objects. Name the test "
                "data of a source in the table [data]."
            )
        changed = {**section, **data} if isinstance(data, Mapping) else data
        _set(table, "data", changed)
        return
    if isinstance(data, (str, PurePath)) and test is None:
        _set_named_data(table, section, _named_source(data, size))
        return
    if isinstance(data, list) and not _texts(data):
        corpora = [_open(entry, "data", size) for entry in _at_least_one(data)]
        corpus = joined(corpora, "data")
        if section.get("clients", len(data)) != len(data):
            raise ConfigError(
                f"Cannot use clients = {section['clients']}: data is a list for "
                f"{len(data)} clients. Leave clients out."
            )
        section |= {"partition": "given", "clients": len(data)}
    else:
        corpus = _open(data, "data", size)
    if test is not None:
        corpus = with_test(corpus, _open(test, "test", size))
    if corpus.train.y is None:
        raise DataError(
            "Cannot use data: it has no labels. Give a pair (x, y). Records without "
            "labels are public=…."
        )
    name = name_corpus(corpus, "data")
    table["data"] = section | {"source": name, "path": "", "options": {}}


def _set_named_data(
    table: dict[str, Any], section: dict[str, Any], source: dict[str, Any]
) -> None:
    """Take data from a source; where its folders are those of clients, these are the
    sites.
    """
    table["data"] = section | source
    federation = _section(table, "federation")
    by_folder = section.get("partition") == "folders" and source.get("path")
    if by_folder and not federation.get("sites"):
        sites = [folder.name for folder in subfolders(Path(source["path"]))]
        table["federation"] = federation | {"sites": sites}


def _set_public(table: dict[str, Any], public: Any, size: int | None) -> None:
    section = _section(table, "aux")
    if isinstance(public, (Mapping, AuxConfig)):
        changed = {**section, **public} if isinstance(public, Mapping) else public
        _set(table, "aux", changed)
        return
    if isinstance(public, (str, PurePath)):
        table["aux"] = section | _named_source(public, size)
        return
    if isinstance(public, list) and not _texts(public):
        corpora = [_open(entry, "public", size) for entry in _at_least_one(public)]
        corpus = joined(corpora, "public")
    else:
        corpus = _open(public, "public", size)
    name = name_corpus(Corpus(corpus.train.unlabelled()), "public")
    table["aux"] = section | {"source": name, "path": "", "options": {}}


def _section(table: dict[str, Any], name: str) -> dict[str, Any]:
    section = table.get(name, {})
    if is_dataclass(section):
        section = to_plain(section)
    return dict(section)


def _texts(values: list[Any]) -> bool:
    """Whether a list is of texts, rather than one entry for each client."""
    return bool(values) and all(
        isinstance(value, str) and not _exists(value) for value in values
    )


def _exists(text: str) -> bool:
    """Whether this is the path of something. A long text is not."""
    try:
        return Path(text).exists()
    except OSError:
        return False


def _at_least_one(values: list[Any]) -> list[Any]:
    if not values:
        raise DataError(
            "Cannot use data: an empty list has data of no client. Give one entry for "
            "each client."
        )
    if all(isinstance(value, (int, float)) for value in values):
        raise DataError(
            "Cannot use data: a list has one entry for each client. Make an array of "
            "numbers, numpy.array(x)."
        )
    return values


def _open(value: Any, what: str, size: int | None) -> Corpus:
    if isinstance(value, (str, PurePath)):
        settings = _named_source(value, size)
        path = settings.get("path") or None
        return open_source(settings["source"], path, **settings["options"])
    return as_corpus(value, what, size)


def _named_source(value: str | PurePath, size: int | None) -> dict[str, Any]:
    """Settings of a source by its name, or of what lies at a path."""
    options: dict[str, Any] = {}
    if size is not None:
        options["size"] = size
    if isinstance(value, str) and (value in SOURCES or ":" in value):
        return {"source": value, "options": options}
    if isinstance(value, str) and not _exists(value) and len(value) > LONGEST_PATH_PART:
        raise DataError(
            f"Cannot read data: {value[:40]!r}… is neither a path nor a source. Give "
            "texts as a list, [text, …], or in a tuple with their labels."
        )
    path = Path(value).expanduser()
    source = source_of(path)
    if source == "images":
        options = {"size": size or IMAGE_SIZE}
    return {"source": source, "path": str(path), "options": options}


def _prototype(model: Any) -> Any:
    if isinstance(model, nn.Module):
        name = type(model).__name__
        raise ConfigError(
            f"Cannot use model: it is a network, {name}(…), and every client starts "
            f"from its own. Give its class, model={name}, or a function that makes it, "
            f"model=lambda: {name}(…)."
        )
    if isinstance(model, (str, PrototypeSpec, Mapping)):
        return model
    if callable(model):
        name = here.name_of(model)
        here.vouched.add(name)
        return name
    raise ConfigError(
        f"Cannot use model = {model!r}: it must be a name, a class of nn.Module or a "
        "function that makes one. Give one of them."
    )
