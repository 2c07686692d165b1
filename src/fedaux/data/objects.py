"""Data that a Python user has at hand, as a `Corpus`: arrays, tensors, tables, texts,
datasets of other libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from fedaux.core import here
from fedaux.core.errors import Exit, FedauxError
from fedaux.data.adapters import from_huggingface, from_torch
from fedaux.data.labels import relabel
from fedaux.data.records import (
    CHANNEL_COUNTS,
    Corpus,
    Records,
    as_array,
    channels_first,
    is_image,
    is_text,
)
from fedaux.data.sources import tidy
from fedaux.data.table_rows import EncodedRows

FORMAT_OF_SUFFIX = {
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
}
# what Hugging Face's save_to_disk leaves in a folder
SAVED = ("dataset_info.json", "dataset_dict.json")


class DataError(FedauxError, ValueError):
    """Data that were handed over in Python and cannot be used. The message says why."""

    code = Exit.DATA


def source_of(path: Path) -> str:
    """The source that reads a file or a folder."""
    if path.is_dir():
        if any((path / name).is_file() for name in SAVED):
            return "huggingface"
        return "npy" if (path / "x.npy").is_file() else "images"
    if not path.exists():
        raise DataError(
            f"Cannot read the data: there is no {path}. Give an existing folder or "
            "file, the name of a source, or arrays."
        )
    if path.suffix not in FORMAT_OF_SUFFIX:
        raise DataError(
            f"Cannot read {path}: its name does not show how. Give a file that ends in "
            f"{', '.join(FORMAT_OF_SUFFIX)}, or a folder of images."
        )
    return FORMAT_OF_SUFFIX[path.suffix]


def with_test(corpus: Corpus, tested: Corpus) -> Corpus:
    """Return the corpus with the records of another as its test data; classes are
    matched by their names.
    """
    extra = sorted(set(tested.classes) - set(corpus.classes))
    if extra:
        raise DataError(
            f"Cannot read test: the class {', '.join(extra[:5])} is in no training "
            "record. Take such records out."
        )
    if tested.classes:
        tested = relabel(tested, corpus.classes)
    return replace(corpus, test=tested.train)


def as_corpus(value: Any, what: str, size: int | None = None) -> Corpus:
    """Return data as a corpus.

    Args:
        value: Arrays (x, y), x alone, `Records`, a `Corpus`, a PyTorch or a Hugging
            Face dataset.
        what: The argument that it was, for messages: data, public or test.
        size: The size to which the images of a dataset are cropped and resized.
    """
    if isinstance(value, Corpus):
        return tidy(value)
    if isinstance(value, Records):
        return tidy(Corpus(value))
    if hasattr(value, "column_names") and hasattr(value, "features"):
        return tidy(from_huggingface(value, size=size))
    if hasattr(value, "columns") and hasattr(value, "iloc"):
        raise DataError(
            f"Cannot read {what}: it is a DataFrame, and data are none. Give data as a "
            "DataFrame as well, with label='…', its column of the class."
        )
    if isinstance(value, Dataset):
        return tidy(from_torch(value, size=size))
    if isinstance(value, tuple):
        if len(value) != 2:
            raise DataError(
                f"Cannot read {what}: a tuple is a pair (x, y), not {len(value)} "
                "parts. Give test data as test=(x, y)."
            )
        x = _rows_of_pair(value[0], what)
        y, classes = _labels(value[1], len(x), what)
        return tidy(Corpus(Records(x, y), classes=classes))
    return tidy(Corpus(Records(as_rows(value, what))))


def _rows_of_pair(value: Any, what: str) -> NDArray[Any]:
    try:
        return as_rows(value, f"{what}: x")
    except DataError as error:
        if not hasattr(value, "iloc"):
            raise
        raise DataError(
            f"Cannot read {what}: x is a DataFrame with words, NaN or infinity. Give "
            "it whole, data=frame, with label='…', its column of the class: words and "
            "gaps are then read as well."
        ) from error


def as_rows(value: Any, what: str = "records") -> NDArray[Any]:
    """Rows as the package takes them: uint8 images, float32 numbers, or texts.

    Images are arrays (N, H, W, C) or (N, C, H, W) of 0 to 255, or of floats from 0 to 1
    as `ToTensor` gives them.
    """
    x = as_array(value)
    texts = x.dtype.kind in "OU" and x.ndim == 1
    if texts:
        texts = all(isinstance(text, str) for text in x.tolist())
    if texts:
        x = x.astype(object)
    if len(x.shape) < 1 + (not is_text(x)) or x.dtype.kind not in "OUbiuf":
        raise DataError(
            f"Cannot read {what}: it must be an array with one row for each record, or "
            f"a list of texts, not {_kind(value)}. Convert it."
        )
    if len(x) == 0:
        raise DataError(f"Cannot read {what}: it has no rows. Give at least one.")
    if x.dtype.kind == "O":
        if not texts:
            raise DataError(
                f"Cannot read {what}: it must be only numbers or only texts, not an "
                "array of objects. Convert it."
            )
        return x
    if x.dtype.kind == "f":
        _refuse_infinite(x, what)
    if x.ndim == 3 and x.dtype == np.uint8:
        return x[..., None]  # grey images without a channel axis
    x = _as_pixels(x)
    if channels_first(x):
        x = x.transpose(0, 2, 3, 1)
    return x if is_image(x) else x.astype(np.float32)


def _refuse_infinite(x: NDArray[Any], what: str) -> None:
    finite = np.isfinite(x).reshape(len(x), -1).all(axis=1)
    if not finite.all():
        raise DataError(
            f"Cannot read {what}: it has NaN or infinity in row "
            f"{int(finite.argmin())}. Fill it in, or take the row out."
        )


def _as_pixels(x: NDArray[Any]) -> NDArray[Any]:
    """Images as uint8, where numbers can be their pixels. Others as they are."""
    if x.ndim != 4 or x.dtype == np.uint8:
        return x
    channels = x.shape[1] in CHANNEL_COUNTS or x.shape[3] in CHANNEL_COUNTS
    if not channels or x.min() < 0:
        return x
    if x.dtype.kind == "f" and x.max() <= 1:
        x = np.rint(255 * x).astype(np.uint8)
    elif x.max() <= 255 and (x.dtype.kind in "iu" or (x == np.rint(x)).all()):
        x = x.astype(np.uint8)
    return x


def _kind(value: Any) -> str:
    name = type(value).__name__
    shape = getattr(value, "shape", None)
    return name if shape is None else f"{name} of shape {tuple(shape)}"


def _labels(
    value: Any, count: int, what: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """(a number from 0 on for each record, names of the classes where labels are
    words).
    """
    y = as_array(value)
    if y.ndim != 1:
        hint = ", such as y.argmax(axis=1) of one-hot labels" * (y.ndim == 2)
        raise DataError(
            f"Cannot read {what}: y must be one label for each record, not an array of "
            f"shape {y.shape}. Give one label for each record{hint}."
        )
    if len(y) != count:
        raise DataError(
            f"Cannot read {what}: x has {count} rows and y has {len(y)} labels. Give "
            "each row its label."
        )
    values = y.tolist()
    missing = [
        index for index, label in enumerate(values) if label is None or label != label
    ]
    if missing:
        raise DataError(
            f"Cannot read {what}: y has no label in row {missing[0]}. Take such rows "
            "out."
        )
    if all(isinstance(label, str) for label in values):
        classes, labels = np.unique(y.astype(str), return_inverse=True)
        return labels.astype(np.int64), tuple(map(str, classes))
    whole = y.dtype.kind in "iub"
    if y.dtype.kind == "f":
        whole = bool((y == np.rint(y)).all())
    if not whole or min(values) < 0:
        raise DataError(
            f"Cannot read {what}: y must be whole numbers from 0 on, or names of "
            f"classes, not {values[0]!r}, …. Convert it."
        )
    return y.astype(np.int64), ()


def joined(corpora: Sequence[Corpus], what: str) -> Corpus:
    """The data of several clients as one corpus that knows whose each record is."""
    first = corpora[0].train
    for number, corpus in enumerate(corpora):
        rows = corpus.train
        if rows.shape != first.shape or is_text(rows.x) != is_text(first.x):
            raise DataError(
                f"Cannot read {what}: client {number} has rows of {rows.shape}, client "
                f"0 of {first.shape}. Give all of them rows of one shape."
            )
    names = [corpus.classes for corpus in corpora]
    classes = tuple(dict.fromkeys(chain.from_iterable(names)))
    if classes and not all(names):
        raise DataError(
            f"Cannot read {what}: some clients have names of classes and others "
            "numbers. Give all of them names."
        )

    if classes:
        corpora = [relabel(corpus, classes) for corpus in corpora]
    parts = [corpus.train for corpus in corpora]
    records = Records(_joined_rows(parts))
    if first.y is not None:
        y = np.concatenate([part.labels for part in parts])
        records = replace(records, y=y)
    site = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return Corpus(records, classes=classes, site=site, schema=corpora[0].schema)


def _joined_rows(parts: Sequence[Records]) -> NDArray[Any]:
    tables: list[Any] = [part.x for part in parts if part.rows is None]
    if len(tables) == len(parts) and all(isinstance(x, EncodedRows) for x in tables):
        return cast("NDArray[Any]", EncodedRows.joined(tables))
    return np.concatenate([part.gather() for part in parts])


def name_corpus(corpus: Corpus, label: str) -> str:
    """A name under which a configuration can have these records as a source
    (`core.here`).
    """
    content: list[bytes | str] = [repr(corpus.classes)]
    for records in (corpus.train, corpus.test):
        if records is None:
            continue
        for values in (*_rows_of(records), records.y, records.person):
            array = np.zeros(0) if values is None else np.asarray(values)
            content.append(f"{array.dtype} {array.shape}")
            if is_text(array):
                content.append("\0".join(array))
            else:
                content.append(np.ascontiguousarray(array).tobytes())
    if corpus.site is not None:
        content.append(corpus.site.tobytes())
    if corpus.schema is not None:
        content.append(corpus.schema.hash)
    return here.add(label, lambda: corpus, *content)


def _rows_of(records: Records) -> list[NDArray[Any]]:
    """What tells rows from others: the rows, or what a large table holds of them."""
    x = records.x
    if isinstance(x, EncodedRows) and records.rows is None:
        return [x.values, x.codes]
    return [records.gather()]
