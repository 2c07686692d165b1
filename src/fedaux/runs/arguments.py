"""From the keywords of `fedaux.run` to a `Config`: arrays, modules and methods become
names that it can hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path, PurePath
from typing import Any

from torch import nn

from fedaux.config.methods import Method
from fedaux.config.parsing import ConfigError, keys_of, set_key, to_plain, type_hints
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.core import here
from fedaux.core.errors import unknown_name
from fedaux.data.images import subfolders
from fedaux.data.objects import (
    DataError,
    as_corpus,
    joined,
    name_corpus,
    source_of,
    with_test,
)
from fedaux.data.records import Corpus
from fedaux.data.sources import SOURCES, open_source

OBJECTS = ("data", "public", "test", "model", "size")  # keywords that are no settings
# to which the images of a folder are resized where nothing else is said
IMAGE_SIZE = 32


def make_config(
    method: str | Method | Config = "fedaux",
    *,
    data: Any = None,
    public: Any = None,
    test: Any = None,
    model: Any = None,
    size: int | None = None,
    **settings: Any,
) -> Config:
    """Return the validated configuration that these arguments of `fedaux.run`, which
    explains them, describe.
    """
    table: dict[str, Any] = (
        method.to_dict()
        if isinstance(method, Config)
        else {"method": method_name_of(method)}
    )
    for key, value in settings.items():
        _set(table, key, value)
    if data is not None:
        _set_data(table, data, test, size)
    elif test is not None:
        raise ConfigError(
            "test belongs to data that are given with it: run(…, data=(x, y), "
            "test=(x_test, y_test))."
        )
    if public is not None:
        _set_public(table, public, size)
    if model is not None:
        table["prototypes"] = [
            _prototype(one)
            for one in (model if isinstance(model, (list, tuple)) else [model])
        ]
    return Config.from_dict(table)


def method_name_of(method: str | Method) -> str:
    """The name of a method; a `Method` gets one for this session."""
    if isinstance(method, Method):
        return here.add(method.label, method, repr(method))
    if not isinstance(method, str):
        raise ConfigError(
            "the method is a name such as 'fedaux', a fedaux.Method or a "
            f"fedaux.Config, not {method!r}."
        )
    return method


def _set(table: dict[str, Any], key: str, value: Any) -> None:
    """A setting by its name: of the whole, or one that a single section has."""
    hints = type_hints(Config)
    if key in hints:
        if (
            is_dataclass(hints[key])
            and isinstance(value, Mapping)
            and isinstance(table.get(key), Mapping)
        ):
            table[key] = {**table[key], **value}  # parts of a section
        else:
            table[key] = (
                to_plain(value)
                if is_dataclass(value) and not isinstance(value, PrototypeSpec)
                else value
            )
        return
    found = [known for known in keys_of(Config) if known.rpartition(".")[2] == key]
    if len(found) > 1:
        section, _, leaf = found[1].rpartition(".")
        raise ConfigError(
            f"{key} is not one setting: it may be {', '.join(found)}; write "
            f"{section}={{{leaf!r}: …}}."
        )
    if not found:
        known = [
            *OBJECTS,
            *hints,
            *(name.rpartition(".")[2] for name in keys_of(Config)),
        ]
        raise ConfigError(str(unknown_name("keyword", key, dict.fromkeys(known))))
    set_key(table, found[0], value, key)


def _set_data(table: dict[str, Any], data: Any, test: Any, size: int | None) -> None:
    section = _section(table, "data")
    if isinstance(data, (Mapping, DataConfig)):
        if test is not None:
            raise ConfigError(
                "test goes with data that are objects; a table [data] names the test "
                "data of its source."
            )
        _set(table, "data", {**section, **data} if isinstance(data, Mapping) else data)
        return
    if isinstance(data, list) and not _texts(data):
        corpus = joined(
            [_open(one, "data", size) for one in _at_least_one(data)], "data"
        )
        if "clients" in section and section["clients"] != len(data):
            raise ConfigError(
                f"clients = {section['clients']}, but data is a list for {len(data)} "
                "clients."
            )
        section |= {"partition": "given", "clients": len(data)}
    elif isinstance(data, (str, PurePath)) and test is None:
        named = _named_source(data, size)
        table["data"] = section | named
        federation = _section(table, "federation")
        if (
            section.get("partition") == "folders"
            and named.get("path")
            and not federation.get("sites")
        ):
            table["federation"] = federation | {
                "sites": [one.name for one in subfolders(Path(named["path"]))]
            }
        return
    else:
        corpus = _open(data, "data", size)
    if test is not None:
        corpus = with_test(corpus, _open(test, "test", size))
    if corpus.train.y is None:
        raise DataError(
            "data has no labels: give a pair (x, y); records without labels are "
            "public=…"
        )
    table["data"] = section | {
        "source": name_corpus(corpus, "data"),
        "path": "",
        "options": {},
    }


def _set_public(table: dict[str, Any], public: Any, size: int | None) -> None:
    section = _section(table, "aux")
    if isinstance(public, (Mapping, AuxConfig)):
        _set(
            table,
            "aux",
            {**section, **public} if isinstance(public, Mapping) else public,
        )
    elif isinstance(public, (str, PurePath)):
        table["aux"] = section | _named_source(public, size)
    else:
        several = isinstance(public, list) and not _texts(public)
        corpora = [
            _open(one, "public", size)
            for one in (_at_least_one(public) if several else [public])
        ]
        corpus = joined(corpora, "public") if several else corpora[0]
        table["aux"] = section | {
            "source": name_corpus(Corpus(corpus.train.unlabelled()), "public"),
            "path": "",
            "options": {},
        }


def _section(table: dict[str, Any], name: str) -> dict[str, Any]:
    given = table.get(name, {})
    return dict(to_plain(given) if is_dataclass(given) else given)


def _texts(values: list[Any]) -> bool:
    """Whether a list is of texts, rather than one entry for each client."""
    return bool(values) and all(
        isinstance(one, str) and not Path(one).exists() for one in values
    )


def _at_least_one(values: list[Any]) -> list[Any]:
    if not values:
        raise DataError("an empty list has data of no client")
    if all(isinstance(one, (int, float)) for one in values):
        raise DataError(
            "a list has one entry for each client; make an array of numbers, "
            "numpy.array(x)"
        )
    return values


def _open(value: Any, what: str, size: int | None) -> Corpus:
    if isinstance(value, (str, PurePath)):
        named = _named_source(value, size)
        return open_source(
            named["source"], named.get("path") or None, **named.get("options", {})
        )
    return as_corpus(value, what, size)


def _named_source(value: str | PurePath, size: int | None) -> dict[str, Any]:
    """Settings of a source by its name, or of what lies at a path."""
    options = {} if size is None else {"size": size}
    if isinstance(value, str) and (value in SOURCES or ":" in value):
        return {"source": value, "options": options}
    path = Path(value).expanduser()
    source = source_of(path)
    if source == "images":
        options = {"size": size or IMAGE_SIZE}
    return {"source": source, "path": str(path), "options": options}


def _prototype(model: Any) -> Any:
    if isinstance(model, nn.Module):
        name = type(model).__name__
        raise ConfigError(
            f"model is a network, {name}(…): give its class, model={name}, or a "
            f"function that makes it, model=lambda: {name}(…), so that every client "
            "can start from its own."
        )
    if isinstance(model, (str, PrototypeSpec, Mapping)):
        return model
    if callable(model):
        name = here.name_of(model)
        here.vouched.add(name)
        return name
    raise ConfigError(
        "model is a name, a class of nn.Module or a function that makes one, not "
        f"{model!r}."
    )
