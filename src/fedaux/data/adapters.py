"""Datasets of other libraries as a `Corpus`: PyTorch (torchvision's folders are such),
Hugging Face, Flower Datasets.

def data(): return from_torch(ImageFolder("photos"), size=32)             # a source of
one's own: module:data source = "huggingface"
# saved with Dataset.save_to_disk def site(path): return
from_huggingface(partitioner.load_partition(int(path.name)))

A site's own source takes the classes as well, `def site(path, declared)`, and hands
them on: `declared=declared`. What a record is must then be known beforehand, and each
is read and made into it separately.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import Signature, signature
from itertools import repeat
from pathlib import Path
from typing import Any

from fedaux.config.parsing import ConfigError
from fedaux.core.errors import MissingPackageError, install_command
from fedaux.core.failures import attempt
from fedaux.data.arrays import require_file
from fedaux.data.labels import DeclaredClasses, to_name
from fedaux.data.records import Corpus, Records, RecordsError, RecordSpec
from fedaux.data.samples import (
    Sample,
    Shape,
    chosen_spec,
    read_one_by_one,
    stack,
)

Reading = Callable[..., Any]  # calls a function of the library with these arguments
# columns in which a record may be
RECORD_COLUMNS = ("image", "img", "text", "content", "x", "features")
LABELS = ("label", "labels", "fine_label", "y", "target")
NUMERIC = re.compile(r"bool|u?int\d+|float\d+")  # types of Hugging Face


def directly(read: Callable[..., Any], *arguments: Any) -> Any:
    """As `attempt`, but an error of the library ends the reading."""
    return read(*arguments)


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
    labels. Every item is read once.

    Images (PIL, or tensors from 0 to 1 as `ToTensor` makes them) become uint8. Pass a
    dataset without random transforms.

    Args:
        dataset: The training data of a simulation, or the records of a site.
        test: Test data of a simulation. Without it, part of the training data is held
            out.
        classes: Names of labels 0, 1, …, if they differ from `dataset.classes`.
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
        spec = chosen_spec(size, mode, shape)
        if text:
            spec = RecordSpec("text")
        if spec is None:
            raise ConfigError(
                "Cannot convert the dataset: nothing declares its records. Give "
                "from_torch size=32 for images, shape=(5,) for numbers, or text=True."
            )
        own = DeclaredClasses.of(declared, names)
        items = _torch_items(dataset, attempt)
        train = read_one_by_one(items, len(dataset), spec, own)
        return Corpus(replace(train, person=None), classes=tuple(declared))

    def records(part: Any) -> Records:
        return replace(stack(_torch_items(part), size, mode), person=None)

    return Corpus(records(dataset), None if test is None else records(test), names)


def _torch_items(dataset: Any, read: Reading = directly) -> Iterator[Sample]:
    """Each item of a PyTorch dataset in turn."""
    for index in range(len(dataset)):
        item = read(dataset.__getitem__, index)
        parts: Sequence[Any] = [item]
        if isinstance(item, (tuple, list)):
            parts = item
        x, label, *_ = [*parts, None, None]
        yield x, label, None


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
        dataset: The training data. Of a `DatasetDict`, `split` is taken, and its split
            `test` as the test data.
        test: Test data of a simulation.
        record: The column of records, if it has an unusual name.
        label: The column of labels, if it has an unusual name. Without
            one there are no labels.
        size: Crop and shrink images to a square of this many pixels, as the source
            `images` does.
        mode: "RGB", "L" for grey or "RGBA".
        split: The split of a `DatasetDict` with the training data.
        person: The column with the person of each record.
        declared: At a site, the classes of the federation. A label is then a number or
            a name from the dataset's `ClassLabel`, and the schema gives the kind of
            record, text or numbers of a fixed shape, unless `size` (images) or `shape`
            (numbers) does.
        shape: At a site, the shape of a record of numbers.

    Returns:
        The data, ready for `data=` or `public=` of `fedaux.run`.
    """
    if isinstance(dataset, Mapping):
        if split not in dataset:
            raise ConfigError(
                f"Cannot read the dataset: it has {', '.join(dataset)}, but no "
                f"{split!r}. Name one with split=…."
            )
        if test is None:
            test = dataset.get("test")
        dataset = dataset[split]
    present = list(dataset.column_names)
    x_name = _column(record, RECORD_COLUMNS, present)
    y_name = _column(label, LABELS, present, required=bool(label or declared))
    _column(person, (), present, required=bool(person))
    columns = (x_name, y_name, person)
    named = getattr(dataset.features.get(y_name), "names", None)  # of a `ClassLabel`
    names = tuple(named or ())
    tested: Records | None = None
    if declared:
        feature = dataset.features[x_name]
        spec = chosen_spec(size, mode, shape) or _schema_spec(x_name, feature)
        # whose own decoder would follow links to other machines
        if type(feature).__name__ == "Image":
            dataset = dataset.cast_column(x_name, type(feature)(decode=False))
        own = DeclaredClasses.of(declared, names)
        names = tuple(declared)
        rows = _rows_of(dataset, columns, attempt)
        train = read_one_by_one(rows, len(dataset), spec, own)
    else:
        names = names or _words(dataset[y_name] if y_name else ())
        number = partial(_number, {name: place for place, name in enumerate(names)})
        train = stack(_rows_of(dataset, columns, directly, number), size, mode)
        if test is not None:
            labels = _column(y_name, (), test.column_names, required=False)
            rows = _rows_of(test, (x_name, labels, ""), directly, number)
            tested = replace(stack(rows, size, mode), person=None)
    if not person:
        train = replace(train, person=None)
    return Corpus(train, tested, names)


def _rows_of(
    dataset: Any,
    columns: tuple[str, str, str],
    read: Reading,
    number: Callable[[Any], int] | None = None,
) -> Iterator[Sample]:
    """The values of these columns in each row of a Hugging Face dataset, with numbers
    for its labels if asked. Those of a column "" are None.
    """
    rows, labels, persons = [_values(dataset, name, read) for name in columns]
    if number is not None and columns[1]:
        labels = map(number, labels)
    return zip(rows, labels, persons, strict=True)


def _values(dataset: Any, name: str, read: Reading) -> Iterator[Any]:
    if not name:
        return repeat(None, len(dataset))
    if read is directly:
        return iter(dataset[name])
    column = dataset.select_columns([name])
    rows = (read(column.__getitem__, index) for index in range(len(dataset)))
    return (row and row[name] for row in rows)


def _schema_spec(name: str, feature: Any) -> RecordSpec:
    """Return the kind of record in a Hugging Face column: text, or numbers of the same
    shape for all records.
    """
    if getattr(feature, "dtype", "") in ("string", "large_string"):
        return RecordSpec("text")
    shape = _fixed_shape(feature)
    if shape is None:
        raise ConfigError(
            f"Cannot read the dataset: the column {name!r} is {feature}, which does "
            "not state the shape of a record. Write options = {size = 32} for images "
            "or options = {shape = 5} for numbers, or name a column of texts, options "
            '= {record = "text"}.'
        )
    return RecordSpec("numbers", shape)


def _fixed_shape(feature: Any) -> tuple[int, ...] | None:
    if hasattr(feature, "length"):  # a list
        inner = _fixed_shape(feature.feature)
        if inner is None or feature.length < 1:
            return None
        return feature.length, *inner
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
            "Cannot read the source 'huggingface': datasets is not installed. Run "
            f"{install_command('datasets')}."
        ) from error
    return from_huggingface(datasets.load_from_disk(str(folder)), **options)


_OPTIONS = [
    parameter
    for parameter in signature(from_huggingface).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY
]
huggingface.__signature__ = Signature(  # type: ignore[attr-defined]  # options are checked against it
    [signature(huggingface).parameters["path"], *_OPTIONS], return_annotation="Corpus"
)


def _column(
    name: str, usual: Iterable[str], present: Sequence[str], required: bool = True
) -> str:
    wanted = [name] if name else usual
    column = next((candidate for candidate in wanted if candidate in present), "")
    if required and not column:
        raise RecordsError(
            f"Cannot read the dataset: it has columns {', '.join(present)}. Name the "
            "right ones: record=…, label=…, person=…."
        )
    return column


def _words(labels: Iterable[Any]) -> tuple[str, ...]:
    """The classes, if labels are words."""
    values = list(labels)
    if all(isinstance(value, int) for value in values):
        return ()
    names = [to_name(value) for value in values]
    if None in names:
        raise RecordsError(
            f"Cannot read the dataset: record {names.index(None)} has no label. Take "
            "such records out."
        )
    return tuple(sorted({name for name in names if name is not None}))


def _number(position: Mapping[str, int], value: Any) -> int:
    if isinstance(value, int):
        return value
    name = to_name(value) or ""
    if name not in position:
        raise RecordsError(
            f"Cannot read the test data: they have the class {name!r}, which no "
            "training record has. Take such records out."
        )
    return position[name]
