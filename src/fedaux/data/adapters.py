"""Datasets of other libraries as a `Corpus`: PyTorch (torchvision's folders are such), Hugging Face, Flower Datasets.

def data(): return from_torch(ImageFolder("photos"), size=32)             # a source of one's own: module:data
source = "huggingface"                                                    # saved with Dataset.save_to_disk
def site(path): return from_huggingface(partitioner.load_partition(int(path.name)))

A site's own source takes the classes as well, `def site(path, declared)`, and hands them on: `declared=declared`. Each
record is then read by itself (`one_by_one`), and what a record is must be known beforehand.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import MissingPackageError
from fedaux.data.arrays import require_file
from fedaux.data.image_folder import crop_and_resize
from fedaux.data.labels import DeclaredClasses
from fedaux.data.one_by_one import Item, Shape, attempt, channels_first, chosen_spec, read_one_by_one
from fedaux.data.persons import factorize, name_or_nobody, to_name
from fedaux.data.record_spec import RecordsError, RecordSpec
from fedaux.data.records import Corpus, Records

RECORDS = ("image", "img", "text", "content", "x", "features")  # columns in which a record may be
LABELS = ("label", "labels", "fine_label", "y", "target")
NUMERIC = re.compile(r"bool|u?int\d+|float\d+")  # types of Hugging Face


def from_torch(
    dataset: Any,
    test: Any = None,
    *,
    classes: Sequence[str] = (),
    size: int | None = None,
    mode: str = "RGB",
    declared: Sequence[str] = (),
    shape: Shape | None = None,
    text: bool = False,
) -> Corpus:
    """A PyTorch `Dataset` whose items are (x, label), or x alone where there are no labels; all of it is read once.

    Images (PIL, or tensors from 0 to 1 as of `ToTensor`) become uint8; give a dataset without random transforms.
    `size` and `mode` are those of the source `images`. Names of classes are those of `dataset.classes`, if it has any.

    With `declared` classes, say what a record is: an image of a `size`, numbers of a `shape`, or `text=True`.
    """
    names = tuple(classes or getattr(dataset, "classes", ()))
    if declared:
        spec = RecordSpec("text") if text else chosen_spec(size, mode, shape)
        if spec is None:
            raise ConfigError(
                "what is a record? Give from_torch size=32 for images, shape=(5,) for numbers, or text=True."
            )
        items = (_pair(attempt(dataset.__getitem__, index)) for index in range(len(dataset)))
        own = read_one_by_one(items, len(dataset), spec, DeclaredClasses.of(declared, names))
        return Corpus(Records(own.x, own.y), classes=tuple(declared))

    def records(one: Any) -> Records:
        rows, labels = [], []
        for index in range(len(one)):
            item = one[index]
            pair = item if isinstance(item, (tuple, list)) else (item,)
            rows.append(_row(pair[0], size, mode))
            labels += [int(pair[1])] if len(pair) > 1 else []
        return _records(rows, labels if len(labels) == len(rows) else None)

    return Corpus(records(dataset), None if test is None else records(test), names)


def _pair(item: Any) -> Item:
    """One item of a PyTorch dataset."""
    parts = [*item] if isinstance(item, (tuple, list)) else [item]
    x, label, *_ = [*parts, None, None]
    return x, label, None


def from_huggingface(
    dataset: Any,
    test: Any = None,
    *,
    record: str = "",
    label: str = "",
    size: int | None = None,
    mode: str = "RGB",
    split: str = "train",
    person: str = "",
    declared: Sequence[str] = (),
    shape: Shape | None = None,
) -> Corpus:
    """A Hugging Face `Dataset`, or a partition of Flower Datasets; a `DatasetDict` has a `split` and perhaps test.

    `record` and `label` name the columns, if they are not called as usual; a column that is missing is no label.
    `person` names the column of persons.

    With `declared` classes a label is a number or a name of the dataset's own (`ClassLabel`), and a record is what the
    schema says: text, or numbers of a fixed shape; or an image of a `size`, or numbers of a `shape`.
    """
    if isinstance(dataset, Mapping):
        if split not in dataset:
            raise ConfigError(f"the dataset has {', '.join(dataset)}, but no {split!r}: name one with split=….")
        test = dataset.get("test") if test is None else test
        dataset = dataset[split]
    names = list(dataset.column_names)
    x_name = _column(record, RECORDS, names)
    y_name = _column(label, LABELS, names, required=bool(label or declared))
    _column(person, (), names, required=bool(person))
    if declared:
        return _own_dataset(dataset, x_name, y_name, person, declared, chosen_spec(size, mode, shape))
    feature = dataset.features.get(y_name) if y_name else None
    classes = tuple(getattr(feature, "names", None) or ())
    if y_name and not classes and not all(isinstance(value, int) for value in dataset[y_name]):
        classes = _words(dataset[y_name])

    def records(one: Any) -> Records:
        position = {name: index for index, name in enumerate(classes)}
        labels = None
        if y_name and y_name in one.column_names:
            labels = [value if isinstance(value, int) else _position(value, position) for value in one[y_name]]
        return _records([_row(value, size, mode) for value in one[x_name]], labels)

    train = records(dataset)
    ids = factorize(map(name_or_nobody, dataset[person])) if person else None
    return Corpus(Records(train.x, train.y, person=ids), None if test is None else records(test), classes)


def _own_dataset(
    dataset: Any, x_name: str, y_name: str, person: str, declared: Sequence[str], chosen: RecordSpec | None
) -> Corpus:
    """All records of a site, column by column and row by row: what cannot be decoded is missing in its own record."""
    spec = chosen or _schema_spec(dataset.features[x_name])
    if spec is None:
        raise ConfigError(
            f"the column {x_name!r} is {dataset.features[x_name]}, which does not say what shape a record has: write "
            "options = {size = 32} for images or options = {shape = 5} for numbers, or name a column of texts, "
            'options = {record = "text"}.'
        )
    classes = DeclaredClasses.of(declared, getattr(dataset.features[y_name], "names", None) or ())
    if type(dataset.features[x_name]).__name__ == "Image":  # whose own decoder would follow links to other machines
        dataset = dataset.cast_column(x_name, type(dataset.features[x_name])(decode=False))

    def values(name: str) -> Iterator[Any]:
        column = dataset.select_columns([name]) if name else ()
        return (attempt(lambda index: column[index][name], index) for index in range(len(dataset)))

    items = zip(values(x_name), values(y_name), values(person), strict=True)
    own = read_one_by_one(items, len(dataset), spec, classes)
    return Corpus(own if person else Records(own.x, own.y), classes=tuple(declared))


def _schema_spec(feature: Any) -> RecordSpec | None:
    """Of a column of Hugging Face: text, or numbers of a shape that is the same for all records."""
    if getattr(feature, "dtype", "") in ("string", "large_string"):
        return RecordSpec("text")
    shape = _fixed_shape(feature)
    return None if shape is None else RecordSpec("numbers", shape)


def _fixed_shape(feature: Any) -> tuple[int, ...] | None:
    if hasattr(feature, "length"):  # a list
        inner = _fixed_shape(feature.feature)
        return None if inner is None or feature.length < 1 else (feature.length, *inner)
    if not NUMERIC.fullmatch(str(getattr(feature, "dtype", ""))):
        return None
    shape = tuple(getattr(feature, "shape", ()))
    return None if None in shape else shape


def huggingface(
    path: Path,
    record: str = "",
    label: str = "",
    size: int | None = None,
    mode: str = "RGB",
    split: str = "train",
    person: str = "",
    declared: Sequence[str] = (),
    shape: Shape | None = None,
) -> Corpus:
    """The source: a folder that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote."""
    folder = require_file(path, "a dataset of Hugging Face, written by save_to_disk")
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise MissingPackageError("source 'huggingface' needs datasets: pip install 'fedaux[datasets]'") from error
    saved = datasets.load_from_disk(str(folder))
    return from_huggingface(
        saved,
        record=record,
        label=label,
        size=size,
        mode=mode,
        split=split,
        person=person,
        declared=declared,
        shape=shape,
    )


def _column(name: str, usual: Iterable[str], present: Sequence[str], required: bool = True) -> str:
    found = name if name in present else next((one for one in usual if one in present and not name), "")
    if required and not found:
        raise RecordsError(
            f"the dataset has columns {', '.join(present)}; name the right ones: record=…, label=…, person=…"
        )
    return found


def _words(labels: Iterable[Any]) -> tuple[str, ...]:
    """The classes, if labels are words."""
    names = [to_name(value) for value in labels]
    if None in names:
        raise RecordsError(f"record {names.index(None)} of the dataset has no label; take such records out")
    return tuple(sorted({name for name in names if name is not None}))


def _position(value: Any, position: Mapping[str, int]) -> int:
    name = to_name(value) or ""
    if name not in position:
        raise RecordsError(f"the test data have the class {name!r}, which no training record has")
    return position[name]


def _row(value: Any, size: int | None, mode: str) -> Any:
    if isinstance(value, Image.Image):
        return crop_and_resize(value, size, mode)
    if isinstance(value, str):
        return value
    x = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if x.dtype.kind == "f" and x.ndim == 3 and x.shape[0] in (1, 3, 4) and x.min() >= 0 and x.max() <= 1:
        x = np.rint(255 * x).astype(np.uint8)  # an image, as `ToTensor` gives it
    return x.transpose(1, 2, 0) if channels_first(x) else x


def _records(rows: Sequence[Any], labels: Sequence[int] | None) -> Records:
    if not rows:
        raise RecordsError("the dataset is empty; check the split")
    if isinstance(rows[0], str):
        x: NDArray[Any] = np.array(rows, dtype=object)
    elif len({(row.shape, row.dtype == np.uint8) for row in rows}) > 1:
        raise RecordsError("the records are not all of one shape, or not all images; size=32 crops and shrinks images")
    else:
        x = np.stack(rows)
        x = x[..., None] if x.dtype == np.uint8 and x.ndim == 3 else x  # grey images without a channel axis
        x = x.astype(np.float32) if x.dtype.kind == "f" else x
    return Records(x, None if labels is None else np.array(labels, dtype=np.int64))
