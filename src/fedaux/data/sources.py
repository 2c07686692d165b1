"""Registry of data sources: a name, a path and options in, a `Corpus` out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import import_function, unknown_name, user_code
from fedaux.data import arrays, images, text
from fedaux.data.image_folder import image_folder
from fedaux.data.records import Corpus, Records

Source = Callable[..., Corpus]

SOURCES: dict[str, Source] = {
    "npy": arrays.npy,
    "npz": arrays.npz,
    "images": image_folder,
    "cifar10": images.cifar10,
    "cifar100": images.cifar100,
    "stl10": images.stl10,
    "svhn": images.svhn,
    "tinyimagenet": images.tinyimagenet,
    "imagenet32": images.imagenet32,
    "csv": text.csv_text,
    "jsonl": text.jsonl_text,
    "parquet": text.parquet_text,
}


def register(name: str) -> Callable[[Source], Source]:
    """Register a function `(path, **options) → Corpus` as a source."""

    def add(source: Source) -> Source:
        SOURCES[name] = source
        return source

    return add


@register("digits")
def digits() -> Corpus:
    """scikit-learn's 1,797 handwritten digits: uint8 (N, 8, 8, 1), no download, no test set."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    return Corpus(Records(x, bunch.target.astype(np.int64)), classes=tuple(str(digit) for digit in range(10)))


def open_source(name: str, path: str | Path | None = None, **options: Any) -> Corpus:
    """The corpus of a registered source or of a `module:function`; `path` is passed on if given."""
    source = _lookup(name)
    arguments = options if path is None else {"path": Path(path).expanduser(), **options}
    if "person" in arguments and not accepts(name, "person"):
        raise ConfigError(
            f"source {name!r} does not know the person of a record: data.person = {arguments['person']!r} would be its "
            f"argument `person`, and it takes {inspect.signature(source)}. "
            "Delete data.person, or choose another source."
        )
    try:
        inspect.signature(source).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"source {name!r}: {error}; it takes {inspect.signature(source)}") from error
    with user_code("source", name):
        corpus = source(**arguments)
    if not isinstance(corpus, Corpus):
        raise ValueError(f"source {name!r} returned {type(corpus).__name__}; return a fedaux.data.records.Corpus")
    return corpus


def accepts(name: str, option: str) -> bool:
    """Whether a source has this parameter."""
    return option in inspect.signature(_lookup(name)).parameters


def _lookup(name: str) -> Source:
    source = import_function(name, "source") if ":" in name else SOURCES.get(name)
    if source is None:
        raise unknown_name("source", name, [*SOURCES, "module:function"])
    return source
