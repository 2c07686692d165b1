"""Datasets of other libraries as a `Corpus`: PyTorch (torchvision's folders are such),
Hugging Face, Flower Datasets.

def data(): return from_torch(ImageFolder("photos"), size=32)             # a source of
one's own: module:data source = "huggingface"
# saved with Dataset.save_to_disk def site(path): return
from_huggingface(partitioner.load_partition(int(path.name)))

A site's own source takes the classes as well, `def site(path, declared)`, and hands
them on: `declared=declared`. What a record is must then be known beforehand, and each
is made into it by itself (`read_one_by_one`): a value that cannot be becomes a blank
record without a class. Nothing is stacked, so no value decides on the type or the shape
of others.
"""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Signature, signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import MissingPackageError
from fedaux.core.failures import attempt
from fedaux.data.arrays import require_file
from fedaux.data.images import (
    MODE_OF_CHANNELS,
    crop_and_resize,
    open_image,
    own_format,
)
from fedaux.data.labels import DeclaredClasses, factorize, name_or_nobody, to_name
from fedaux.data.records import (
    CHANNEL_COUNTS,
    UNDECLARED,
    Corpus,
    Records,
    RecordsError,
    RecordSpec,
    as_array,
    channels_first,
)
from fedaux.data.text import valid_text

Shape = int | str | Sequence[int | str]
# record, label, person; None is missing, or could not be read
Sample = tuple[Any, Any, Any]
# columns in which a record may be
RECORD_COLUMNS = ("image", "img", "text", "content", "x", "features")
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
    """Read a PyTorch `Dataset` whose items are (x, label), or just x if it has no
    labels; every item is read once.

    Images (PIL, or tensors from 0 to 1 as `ToTensor` makes them) become uint8. Pass a
    dataset without random transforms.

    Args:
        dataset: The training data of a simulation, or the records of a site.
        test: Test data of a simulation; without it, part of the training data is held
            out.
        classes: Names of labels 0, 1, …, if they are not those of `dataset.classes`.
        size: Crop and shrink images to a square of this many pixels, as the source
            `images` does.
        mode: "RGB", "L" for grey or "RGBA".
        declared: At a site, the classes of the federation. The kind of record must then
            be given: images of a `size`, numbers of a `shape`, or `text=True`.
        shape: At a site, the shape of a record of numbers.
        text: At a site, whether records are text.

    Returns:
        The data, ready for `data=` or `public=` of `fedaux.run`.
    """
    names = tuple(classes or getattr(dataset, "classes", ()))
    if declared:
        spec = RecordSpec("text") if text else chosen_spec(size, mode, shape)
        if spec is None:
            raise ConfigError(
                "what is a record? Give from_torch size=32 for images, shape=(5,) for "
                "numbers, or text=True."
            )
        items = (
            _pair(attempt(dataset.__getitem__, index)) for index in range(len(dataset))
        )
        own = read_one_by_one(
            items, len(dataset), spec, DeclaredClasses.of(declared, names)
        )
        return Corpus(Records(own.x, own.y), classes=tuple(declared))

    def records(one: Any) -> Records:
        rows = []
        labels = []
        for index in range(len(one)):
            item = one[index]
            pair = item if isinstance(item, (tuple, list)) else (item,)
            rows.append(_row(pair[0], size, mode))
            labels += [int(pair[1])] if len(pair) > 1 else []
        return _records(rows, labels if len(labels) == len(rows) else None)

    return Corpus(records(dataset), None if test is None else records(test), names)


def _pair(item: Any) -> Sample:
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
    """Read a Hugging Face `Dataset`, or a partition of Flower Datasets.

    Args:
        dataset: The training data; of a `DatasetDict`, `split` is taken, and its split
            `test` as the test data.
        test: Test data of a simulation.
        record: The column of records, if it does not have one of the usual names.
        label: The column of labels, if it does not have one of the usual names; without
            one there are no labels.
        size: Crop and shrink images to a square of this many pixels, as the source
            `images` does.
        mode: "RGB", "L" for grey or "RGBA".
        split: The split of a `DatasetDict` that holds the training data.
        person: The column with the person of each record.
        declared: At a site, the classes of the federation. A label is then a number or
            a name from the dataset's own `ClassLabel`, and the schema gives the kind of
            record, text or numbers of a fixed shape, unless `size` (images) or `shape`
            (numbers) does.
        shape: At a site, the shape of a record of numbers.

    Returns:
        The data, ready for `data=` or `public=` of `fedaux.run`.
    """
    if isinstance(dataset, Mapping):
        if split not in dataset:
            raise ConfigError(
                f"the dataset has {', '.join(dataset)}, but no {split!r}: name one "
                "with split=…."
            )
        test = dataset.get("test") if test is None else test
        dataset = dataset[split]
    names = list(dataset.column_names)
    x_name = _column(record, RECORD_COLUMNS, names)
    y_name = _column(label, LABELS, names, required=bool(label or declared))
    _column(person, (), names, required=bool(person))
    if declared:
        return _own_dataset(
            dataset, x_name, y_name, person, declared, chosen_spec(size, mode, shape)
        )
    feature = dataset.features.get(y_name) if y_name else None
    classes = tuple(getattr(feature, "names", None) or ())
    if (
        y_name
        and not classes
        and not all(isinstance(value, int) for value in dataset[y_name])
    ):
        classes = _words(dataset[y_name])

    def records(one: Any) -> Records:
        position = {name: index for index, name in enumerate(classes)}
        labels = None
        if y_name and y_name in one.column_names:
            labels = [
                value if isinstance(value, int) else _position(value, position)
                for value in one[y_name]
            ]
        return _records([_row(value, size, mode) for value in one[x_name]], labels)

    train = records(dataset)
    ids = factorize(map(name_or_nobody, dataset[person])) if person else None
    return Corpus(
        Records(train.x, train.y, person=ids),
        None if test is None else records(test),
        classes,
    )


def _own_dataset(
    dataset: Any,
    x_name: str,
    y_name: str,
    person: str,
    declared: Sequence[str],
    chosen: RecordSpec | None,
) -> Corpus:
    """Read all records of a site row by row: a value that cannot be decoded is missing
    in its own record only.
    """
    spec = chosen or _schema_spec(dataset.features[x_name])
    if spec is None:
        raise ConfigError(
            f"the column {x_name!r} is {dataset.features[x_name]}, which does not say what shape a record has: write "
            "options = {size = 32} for images or options = {shape = 5} for numbers, or "
            "name a column of texts, "
            'options = {record = "text"}.'
        )
    classes = DeclaredClasses.of(
        declared, getattr(dataset.features[y_name], "names", None) or ()
    )
    # whose own decoder would follow links to other machines
    if type(dataset.features[x_name]).__name__ == "Image":
        dataset = dataset.cast_column(
            x_name, type(dataset.features[x_name])(decode=False)
        )

    def values(name: str) -> Iterator[Any]:
        column = dataset.select_columns([name]) if name else ()
        return (
            attempt(lambda index: column[index][name], index)
            for index in range(len(dataset))
        )

    items = zip(values(x_name), values(y_name), values(person), strict=True)
    own = read_one_by_one(items, len(dataset), spec, classes)
    return Corpus(own if person else Records(own.x, own.y), classes=tuple(declared))


def _schema_spec(feature: Any) -> RecordSpec | None:
    """Return the kind of record in a Hugging Face column: text, or numbers of the same
    shape for all records.
    """
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


def huggingface(path: Path, **options: Any) -> Corpus:
    """Read a folder that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote."""
    folder = require_file(path, "a dataset of Hugging Face, written by save_to_disk")
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise MissingPackageError(
            "source 'huggingface' needs datasets: pip install 'fedaux[datasets]'"
        ) from error
    return from_huggingface(datasets.load_from_disk(str(folder)), **options)


_OPTIONS = [
    one
    for one in signature(from_huggingface).parameters.values()
    if one.kind is one.KEYWORD_ONLY
]
huggingface.__signature__ = Signature(  # type: ignore[attr-defined]  # options are checked against it
    [signature(huggingface).parameters["path"], *_OPTIONS], return_annotation="Corpus"
)


def _column(
    name: str, usual: Iterable[str], present: Sequence[str], required: bool = True
) -> str:
    found = (
        name
        if name in present
        else next((one for one in usual if one in present and not name), "")
    )
    if required and not found:
        raise RecordsError(
            f"the dataset has columns {', '.join(present)}; name the right ones: "
            "record=…, label=…, person=…"
        )
    return found


def _words(labels: Iterable[Any]) -> tuple[str, ...]:
    """The classes, if labels are words."""
    names = [to_name(value) for value in labels]
    if None in names:
        raise RecordsError(
            f"record {names.index(None)} of the dataset has no label; take such "
            "records out"
        )
    return tuple(sorted({name for name in names if name is not None}))


def _position(value: Any, position: Mapping[str, int]) -> int:
    name = to_name(value) or ""
    if name not in position:
        raise RecordsError(
            f"the test data have the class {name!r}, which no training record has"
        )
    return position[name]


def _row(value: Any, size: int | None, mode: str) -> Any:
    if isinstance(value, Image.Image):
        return crop_and_resize(value, size, mode)
    if isinstance(value, str):
        return value
    x = as_array(value)
    if (
        x.dtype.kind == "f"
        and x.ndim == 3
        and x.shape[0] in CHANNEL_COUNTS
        and x.min() >= 0
        and x.max() <= 1
    ):
        x = np.rint(255 * x).astype(np.uint8)  # an image, as `ToTensor` gives it
    return x.transpose(1, 2, 0) if channels_first(x[None]) else x


def _records(rows: Sequence[Any], labels: Sequence[int] | None) -> Records:
    if not rows:
        raise RecordsError("the dataset is empty; check the split")
    if isinstance(rows[0], str):
        x: NDArray[Any] = np.array(rows, dtype=object)
    elif len({(row.shape, row.dtype == np.uint8) for row in rows}) > 1:
        raise RecordsError(
            "the records are not all of one shape, or not all images; size=32 crops "
            "and shrinks images"
        )
    else:
        x = np.stack(rows)
        # grey images without a channel axis
        x = x[..., None] if x.dtype == np.uint8 and x.ndim == 3 else x
        x = x.astype(np.float32) if x.dtype.kind == "f" else x
    return Records(x, None if labels is None else np.array(labels, dtype=np.int64))


def chosen_spec(size: int | None, mode: str, shape: Shape | None) -> RecordSpec | None:
    """Return the kind of record in the settings: images of a `size` and `mode`, numbers
    of a `shape`, or None.
    """
    if size is not None:
        width, channels = own_format(size, mode)
        return RecordSpec("image", (width, width, channels))
    if shape is None:
        return None
    try:
        return RecordSpec(
            "numbers",
            tuple(map(int, (shape,) if isinstance(shape, (int, str)) else shape)),
        )
    except ValueError as error:
        raise ConfigError(
            f"shape = {shape!r} must be the numbers of a record along each axis, such "
            "as 5."
        ) from error


def read_one_by_one(
    items: Iterable[Sample], count: int, spec: RecordSpec, classes: DeclaredClasses
) -> Records:
    """Read `count` records of the kind and shape of `spec`, with labels from `classes`
    and the ids of persons.
    """
    make, blank, dtype = _KINDS[spec.kind]
    x: NDArray[Any] = np.full((count, *spec.shape), blank, dtype)
    y = np.full(count, UNDECLARED, np.int64)
    persons = []
    for place, (value, label, person) in enumerate(items):
        made = attempt(make, value, spec.shape)
        if made is not None:
            x[place] = made
            y[place] = classes.label(_plain(label))
        persons.append(name_or_nobody(_plain(person)))
    return Records(x, y, person=factorize(persons))


def _plain(value: Any) -> Any:
    """A number of PyTorch's or NumPy's as Python's own; other values as they are."""
    return (
        attempt(value.item)
        if isinstance(value, (Tensor, np.ndarray, np.generic))
        else value
    )


def _text(value: Any, _: tuple[int, ...]) -> str:
    return valid_text(name_or_nobody(value))


def _numbers(value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if isinstance(value, Tensor):
        value = (
            value.detach()
            .cpu()
            .to(torch.complex128 if value.is_complex() else torch.float32)
            .numpy()
        )
    x = np.asarray(value)
    if x.shape != shape or x.dtype.kind not in "biuf":
        raise ValueError(f"{x.dtype} of shape {x.shape}, not numbers of shape {shape}")
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def _image(value: Any, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    size = shape[0]
    mode = MODE_OF_CHANNELS[shape[2]]
    if isinstance(value, Mapping):  # encoded, as Hugging Face keeps it
        file = (
            Path(value["path"])
            if value["bytes"] is None
            else io.BytesIO(value["bytes"])
        )
        with open_image(file) as image:
            return crop_and_resize(ImageOps.exif_transpose(image), size, mode)
    return crop_and_resize(
        value if isinstance(value, Image.Image) else _picture(value), size, mode
    )


def _picture(value: Any) -> Image.Image:
    """Make an image from pixels, 0 to 255, or from numbers that are clipped to 0
    to 1.
    """
    x = as_array(value)
    if x.dtype.kind == "f" and np.isfinite(x).all():
        x = np.rint(255 * x.clip(0, 1))
    if (
        x.dtype.kind not in "iuf"
        or x.ndim not in (2, 3)
        or not (x.min() >= 0 and x.max() <= 255)
    ):
        raise ValueError(f"{x.dtype} of shape {x.shape} is no image")
    x = x.astype(np.uint8)
    x = x.transpose(1, 2, 0) if channels_first(x[None]) else x
    return Image.fromarray(x[..., 0] if x.ndim == 3 and x.shape[2] == 1 else x)


# how a record is made, a blank one, its type
_KINDS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "image": (_image, 0, np.uint8),
    "numbers": (_numbers, 0, np.float32),
    "text": (_text, "", object),
}
