"""Data that a Python user has at hand, as a `Corpus`: arrays, tensors, tables, texts,
datasets of other libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    """Data that were handed over in Python and cannot be used; the message says why."""

    code = Exit.DATA


def source_of(path: Path) -> str:
    """The source that reads a file or a folder."""
    if path.is_dir():
        saved = any((path / name).is_file() for name in SAVED)
        return (
            "huggingface"
            if saved
            else "npy"
            if (path / "x.npy").is_file()
            else "images"
        )
    if not path.exists():
        raise DataError(
            f"there is no {path}: give an existing folder or file, the name of a "
            "source, or arrays"
        )
    if path.suffix not in FORMAT_OF_SUFFIX:
        raise DataError(
            f"{path} is not read by its name: files end in {', '.join(FORMAT_OF_SUFFIX)}; folders "
            "hold images"
        )
    return FORMAT_OF_SUFFIX[path.suffix]


def with_test(corpus: Corpus, tested: Corpus) -> Corpus:
    """Return the corpus with the records of another as its test data; classes are
    matched by their names.
    """
    extra = sorted(set(tested.classes) - set(corpus.classes))
    if extra:
        raise DataError(
            f"test: the class {', '.join(extra[:5])} is in no training record"
        )
    return replace(
        corpus,
        test=(relabel(tested, corpus.classes) if tested.classes else tested).train,
    )


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
    if isinstance(value, Dataset):
        return tidy(from_torch(value, size=size))
    if isinstance(value, tuple):
        if len(value) != 2:
            raise DataError(
                f"{what}: a tuple is a pair (x, y), not {len(value)} parts; test data "
                "go into test=(x, y)"
            )
        x = as_rows(value[0], f"{what}: x")
        y, classes = _labels(value[1], len(x), what)
        return tidy(Corpus(Records(x, y), classes=classes))
    return tidy(Corpus(Records(as_rows(value, what))))


def as_rows(value: Any, what: str = "records") -> NDArray[Any]:
    """Rows as the package takes them: uint8 images, float32 numbers, or texts.

    Images are arrays (N, H, W, C) or (N, C, H, W) of 0 to 255, or of floats from 0 to 1
    as `ToTensor` gives them.
    """
    x = as_array(value)
    if (
        x.dtype.kind in "OU"
        and x.ndim == 1
        and all(isinstance(text, str) for text in x.tolist())
    ):
        x = x.astype(object)
    if len(x.shape) < 1 + (not is_text(x)) or x.dtype.kind not in "OUbiuf":
        raise DataError(
            f"{what} must be an array with one row for each record, or a list of "
            f"texts, not {_kind(value)}"
        )
    if len(x) == 0:
        raise DataError(f"{what} has no rows")
    if x.dtype.kind == "O":
        if not all(isinstance(text, str) for text in x.tolist()):
            raise DataError(
                f"{what} must be numbers, or texts alone, not an array of objects"
            )
        return x
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))[0])
        raise DataError(
            f"{what} has NaN or infinity in row {row}: fill it in, or take the row out"
        )
    if x.ndim == 3 and x.dtype == np.uint8:
        return x[..., None]  # grey images without a channel axis
    if (
        x.ndim == 4
        and x.dtype != np.uint8
        and (x.shape[1] in CHANNEL_COUNTS or x.shape[3] in CHANNEL_COUNTS)
        and x.min() >= 0
    ):
        if x.dtype.kind == "f" and x.max() <= 1:
            x = np.rint(255 * x).astype(np.uint8)
        elif x.dtype.kind in "iu" and x.max() <= 255:
            x = x.astype(np.uint8)
    if channels_first(x):
        x = x.transpose(0, 2, 3, 1)
    return x if is_image(x) else x.astype(np.float32)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return (
        f"{type(value).__name__} of shape {tuple(shape)}"
        if shape is not None
        else type(value).__name__
    )


def _labels(
    value: Any, count: int, what: str
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """(a number from 0 on for each record, names of the classes where labels are
    words).
    """
    y = as_array(value)
    if y.ndim != 1:
        advice = "; take y.argmax(axis=1) of one-hot labels" if y.ndim == 2 else ""
        raise DataError(
            f"{what}: y must be one label for each record, not an array of shape "
            f"{y.shape}{advice}"
        )
    if len(y) != count:
        raise DataError(
            f"{what}: x has {count} rows and y has {len(y)} labels; give each row its "
            "label"
        )
    values = y.tolist()
    missing = [
        index for index, label in enumerate(values) if label is None or label != label
    ]
    if missing:
        raise DataError(
            f"{what}: y has no label in row {missing[0]}; take such rows out"
        )
    if all(isinstance(label, str) for label in values):
        classes, labels = np.unique(y.astype(str), return_inverse=True)
        return labels.astype(np.int64), tuple(map(str, classes))
    whole = y.dtype.kind in "iub" or (
        y.dtype.kind == "f" and bool((y == np.rint(y)).all())
    )
    if not whole or min(values) < 0:
        raise DataError(
            f"{what}: y must be whole numbers from 0 on, or names of classes, not "
            f"{values[0]!r}, …"
        )
    return y.astype(np.int64), ()


def joined(corpora: Sequence[Corpus], what: str) -> Corpus:
    """The data of several clients as one corpus that knows whose each record is."""
    first = corpora[0]
    for number, one in enumerate(corpora):
        if one.train.shape != first.train.shape or is_text(one.train.x) != is_text(
            first.train.x
        ):
            raise DataError(
                f"{what}: client {number} has rows of {one.train.shape}, client 0 of "
                f"{first.train.shape}"
            )
    classes = tuple(dict.fromkeys(name for one in corpora for name in one.classes))
    if classes and not all(one.classes for one in corpora):
        raise DataError(
            f"{what}: some clients have names of classes and others numbers; give all "
            "of them names"
        )

    alike = [relabel(one, classes).train if classes else one.train for one in corpora]
    x = np.concatenate([records.gather() for records in alike])
    y = (
        None
        if first.train.y is None
        else np.concatenate([records.labels for records in alike])
    )
    site = np.repeat(np.arange(len(corpora)), [len(one.train) for one in corpora])
    return Corpus(Records(x, y), classes=classes, site=site)


def name_corpus(corpus: Corpus, label: str) -> str:
    """A name under which a configuration can have these records as a source
    (`core.here`).
    """
    content: list[bytes | str] = [repr(corpus.classes)]
    for records in (corpus.train, corpus.test):
        for part in (
            () if records is None else (records.gather(), records.y, records.person)
        ):
            array = np.zeros(0) if part is None else np.asarray(part)
            text = is_text(array)
            content += [
                f"{array.dtype} {array.shape}",
                "\0".join(array) if text else np.ascontiguousarray(array).tobytes(),
            ]
    if corpus.site is not None:
        content.append(corpus.site.tobytes())
    return here.add(label, lambda: corpus, *content)
