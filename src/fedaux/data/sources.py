"""Registry of data sources: a name, a path and options in, a `Corpus` out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import FedauxError, import_function, unknown_name, user_code
from fedaux.data import arrays, image_sets, images, tables, text
from fedaux.data.adapters import huggingface
from fedaux.data.records import Corpus, Records, RecordsError, channels_first

Source = Callable[..., Corpus]

SOURCES: dict[str, Source] = {
    "npy": arrays.npy,
    "npz": arrays.npz,
    "images": images.image_folder,
    "cifar10": image_sets.cifar10,
    "cifar100": image_sets.cifar100,
    "stl10": image_sets.stl10,
    "tinyimagenet": image_sets.tinyimagenet,
    "csv": text.csv_text,
    "jsonl": text.jsonl_text,
    "parquet": text.parquet_text,
    "huggingface": huggingface,
    "table": tables.table,
    "schema": tables.schema_rows,
}


def register(name: str) -> Callable[[Source], Source]:
    """Register a function `(path, **options) → Corpus` as a source."""

    def add(source: Source) -> Source:
        SOURCES[name] = source
        return source

    return add


@register("digits")
def digits() -> Corpus:
    """scikit-learn's 1,797 handwritten digits: uint8 (N, 8, 8, 1), no download, no test
    set.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    return Corpus(
        Records(x, bunch.target.astype(np.int64)),
        classes=tuple(str(digit) for digit in range(10)),
    )


def open_source(name: str, path: str | Path | None = None, /, **options: Any) -> Corpus:
    """Read a data set.

    Args:
        name: A registered source, or `module:function`.
        path: The file or folder, if the source takes one.
        options: Further arguments of the source.

    Returns:
        The data, with int64 labels and images with their channels last.
    """
    source = _lookup(name)
    arguments = options
    if path is not None:
        arguments = {"path": Path(path).expanduser(), **options}
    if "person" in arguments and not accepts(name, "person"):
        raise ConfigError(
            f"Cannot use data.person: source {name!r} does not know the person of a "
            f"record. data.person = {arguments['person']!r} would be its argument "
            f"`person`, and it takes {inspect.signature(source)}. Delete data.person, "
            "or choose another source."
        )
    try:
        inspect.signature(source).bind(**arguments)
    except TypeError as error:
        raise ValueError(
            f"Cannot read the data: source {name!r}: {error}. It takes "
            f"{inspect.signature(source)}."
        ) from error
    with naming_file(path):
        with user_code("source", name):
            corpus = source(**arguments)
        if not isinstance(corpus, Corpus):
            raise ValueError(
                f"Cannot read the data: source {name!r} returned "
                f"{type(corpus).__name__}. Return a fedaux.data.records.Corpus."
            )
        return tidy(corpus)


@contextmanager
def naming_file(path: str | Path | None) -> Iterator[None]:
    """Put the user's file before the message of an error about its records."""
    try:
        yield
    except FedauxError:
        raise
    except ValueError as error:
        if path is None or str(Path(path).expanduser()) in str(error):
            raise
        raise RecordsError(
            f"Cannot read {path}: {str(error).rstrip('.')}. Correct the file, or name "
            "another one."
        ) from error


def tidy(corpus: Corpus) -> Corpus:
    """Convert what any array library may produce to what the package expects: int64
    labels, images channels last.
    """
    notes = list(corpus.notes)

    def tidied(records: Records) -> Records:
        x = records.x
        y = records.y
        if channels_first(x):
            shape = ", ".join(map(str, x.shape[1:]))
            notes.append(
                f"images of shape (N, {shape}) were taken as channels first, and "
                "turned to channels last"
            )
            x = x.transpose(0, 2, 3, 1)
        if y is not None and y.dtype != np.int64:
            if y.dtype.kind not in "iub":
                raise ValueError(
                    "Cannot read labels: labels must be whole numbers from 0 on, not "
                    f"{y.dtype}. Use y.astype('int64')."
                )
            y = y.astype(np.int64)
        if x is records.x and y is records.y:
            return records
        return replace(records, x=x, y=y)

    return replace(corpus.map(tidied), notes=tuple(dict.fromkeys(notes)))


def can_be_private(name: str) -> bool:
    """Whether a source may read a site's own records: it reads each independently, or
    its author vouches for that.

    The digits are allowed too: they never change, and so have no neighbouring data
    sets.
    """
    source = _lookup(name)
    return (
        accepts(name, "declared")
        or source is digits
        or not source.__module__.startswith("fedaux.")
    )


def accepts(name: str, option: str) -> bool:
    """Whether a source has this parameter."""
    return option in inspect.signature(_lookup(name)).parameters


def needs_path(name: str) -> bool:
    """Whether a source reads a file or a folder that must be named."""
    path = inspect.signature(_lookup(name)).parameters.get("path")
    return path is not None and path.default is path.empty


def _lookup(name: str) -> Source:
    source = import_function(name, "source") if ":" in name else SOURCES.get(name)
    if source is None:
        raise unknown_name("source", name, [*SOURCES, "module:function"])
    return source
