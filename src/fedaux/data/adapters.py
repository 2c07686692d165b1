"""Datasets of other libraries as a `Corpus`: PyTorch (torchvision's folders are such), Hugging Face, Flower Datasets.

def data(): return from_torch(ImageFolder("photos"), size=32)             # a source of one's own: module:data
source = "huggingface"                                                    # saved with Dataset.save_to_disk
def site(path): return from_huggingface(partitioner.load_partition(int(path.name)))
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fedaux.core.errors import MissingPackageError
from fedaux.data.arrays import require_file
from fedaux.data.image_folder import crop_and_resize
from fedaux.data.persons import to_name
from fedaux.data.record_spec import RecordsError
from fedaux.data.records import Corpus, Records

RECORDS = ("image", "img", "text", "content", "x", "features")  # columns in which a record may be
LABELS = ("label", "labels", "fine_label", "y", "target")


def from_torch(
    dataset: Any, test: Any = None, *, classes: Sequence[str] = (), size: int | None = None, mode: str = "RGB"
) -> Corpus:
    """A PyTorch `Dataset` whose items are (x, label), or x alone where there are no labels; all of it is read once.

    Images (PIL, or tensors from 0 to 1 as of `ToTensor`) become uint8; give a dataset without random transforms.
    `size` and `mode` are those of the source `images`. Names of classes are those of `dataset.classes`, if it has any.
    """
    names = tuple(classes or getattr(dataset, "classes", ()))

    def records(one: Any) -> Records:
        rows, labels = [], []
        for index in range(len(one)):
            item = one[index]
            pair = item if isinstance(item, (tuple, list)) else (item,)
            rows.append(_row(pair[0], size, mode))
            labels += [int(pair[1])] if len(pair) > 1 else []
        return _records(rows, labels if len(labels) == len(rows) else None)

    return Corpus(records(dataset), None if test is None else records(test), names)


def from_huggingface(
    dataset: Any,
    test: Any = None,
    *,
    record: str = "",
    label: str = "",
    size: int | None = None,
    mode: str = "RGB",
) -> Corpus:
    """A Hugging Face `Dataset`, or a partition of Flower Datasets; a `DatasetDict` has train and perhaps test.

    `record` and `label` name the columns, if they are not called as usual; a column that is missing is no label.
    """
    if isinstance(dataset, Mapping):
        test = dataset.get("test") if test is None else test
        dataset = dataset["train"]
    names = list(dataset.column_names)
    x_name, y_name = _column(record, RECORDS, names), _column(label, LABELS, names, required=bool(label))
    feature = dataset.features.get(y_name) if y_name else None
    classes = tuple(getattr(feature, "names", None) or ())
    if y_name and not classes and not all(isinstance(value, int) for value in dataset[y_name]):
        classes = tuple(sorted({to_name(value) or "" for value in dataset[y_name]}))  # labels are words

    def records(one: Any) -> Records:
        position = {name: index for index, name in enumerate(classes)}
        labels = None
        if y_name and y_name in one.column_names:
            labels = [value if isinstance(value, int) else _position(value, position) for value in one[y_name]]
        return _records([_row(value, size, mode) for value in one[x_name]], labels)

    return Corpus(records(dataset), None if test is None else records(test), classes)


def huggingface(path: Path, record: str = "", label: str = "", size: int | None = None, mode: str = "RGB") -> Corpus:
    """The source: a folder that `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote."""
    folder = require_file(path, "a dataset of Hugging Face, written by save_to_disk")
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise MissingPackageError("source 'huggingface' needs datasets: pip install 'fedaux[datasets]'") from error
    saved = datasets.load_from_disk(str(folder))
    return from_huggingface(saved, record=record, label=label, size=size, mode=mode)


def _column(name: str, usual: Iterable[str], present: Sequence[str], required: bool = True) -> str:
    found = name if name in present else next((one for one in usual if one in present and not name), "")
    if required and not found:
        raise RecordsError(f"the dataset has columns {', '.join(present)}; name the right ones: record=…, label=…")
    return found


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
    return x.transpose(1, 2, 0) if _channels_first(x) else x


def _channels_first(x: NDArray[Any]) -> bool:
    return x.dtype == np.uint8 and x.ndim == 3 and x.shape[0] in (1, 3, 4) and x.shape[2] not in (1, 3, 4)


def _records(rows: Sequence[Any], labels: Sequence[int] | None) -> Records:
    if not rows:
        raise RecordsError("the dataset is empty; check the split")
    if isinstance(rows[0], str):
        x: NDArray[Any] = np.array(rows, dtype=object)
    elif len({row.shape for row in rows}) > 1:
        raise RecordsError("the records are not all of one shape; size=32 crops and shrinks images")
    else:
        x = np.stack(rows)
        x = x[..., None] if x.dtype == np.uint8 and x.ndim == 3 else x  # grey images without a channel axis
        x = x.astype(np.float32) if x.dtype.kind == "f" else x
    return Records(x, None if labels is None else np.array(labels, dtype=np.int64))
