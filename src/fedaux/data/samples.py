"""Samples of other libraries as records.

In a simulation records keep the type and the shape that they have, and all must have
the same (`stack`). At a site what a record is is known beforehand, and each is made
into it separately (`read_one_by_one`): a value that cannot be becomes a blank record
without a class. Nothing is stacked, so no value decides on the type or the shape of
others.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from fedaux.config.parsing import ConfigError
from fedaux.core.failures import attempt
from fedaux.data.images import (
    MODE_OF_CHANNELS,
    crop_and_resize,
    open_image,
    own_format,
)
from fedaux.data.labels import DeclaredClasses, factorize, name_or_nobody
from fedaux.data.records import (
    CHANNEL_COUNTS,
    UNDECLARED,
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


def stack(samples: Iterable[Sample], size: int | None, mode: str) -> Records:
    """Records of a simulation, with the ids of persons, and with labels if every sample
    has one.
    """
    rows = []
    labels = []
    persons = []
    for value, label, person in samples:
        rows.append(_row(value, size, mode))
        labels.append(label)
        persons.append(name_or_nobody(person))
    records = Records(_stacked(rows), person=factorize(persons))
    if any(label is None for label in labels):
        return records
    return replace(records, y=np.array(list(map(int, labels)), dtype=np.int64))


def _row(value: Any, size: int | None, mode: str) -> Any:
    if isinstance(value, Image.Image):
        return crop_and_resize(value, size, mode)
    if isinstance(value, str):
        return value
    x = as_array(value)
    if _is_from_to_tensor(x):
        x = np.rint(255 * x).astype(np.uint8)
    return _channels_last(x)


def _is_from_to_tensor(x: NDArray[Any]) -> bool:
    """Whether these numbers may be an image, as `ToTensor` gives it."""
    planes = x.dtype.kind == "f" and x.ndim == 3 and x.shape[0] in CHANNEL_COUNTS
    return planes and bool(x.min() >= 0 and x.max() <= 1)


def _channels_last(x: NDArray[Any]) -> NDArray[Any]:
    return x.transpose(1, 2, 0) if channels_first(x[None]) else x


def _stacked(rows: Sequence[Any]) -> NDArray[Any]:
    if not rows:
        raise RecordsError(
            "Cannot read the dataset: the dataset is empty. Check the split."
        )
    if isinstance(rows[0], str):
        return np.array(rows, dtype=object)
    if len({(row.shape, row.dtype == np.uint8) for row in rows}) > 1:
        raise RecordsError(
            "Cannot read the dataset: the records are not all of one shape, or not all "
            "images. Set the option size=32, which crops and shrinks images."
        )
    x: NDArray[Any] = np.stack(rows)
    if x.dtype == np.uint8 and x.ndim == 3:
        return x[..., None]  # grey images without a channel axis
    return x.astype(np.float32) if x.dtype.kind == "f" else x


def chosen_spec(size: int | None, mode: str, shape: Shape | None) -> RecordSpec | None:
    """Return the kind of record in the settings: images of a `size` and `mode`, numbers
    of a `shape`, or None.
    """
    if size is not None:
        width, channels = own_format(size, mode)
        return RecordSpec("image", (width, width, channels))
    if shape is None:
        return None
    lengths = [shape] if isinstance(shape, (int, str)) else shape
    try:
        return RecordSpec("numbers", tuple(map(int, lengths)))
    except ValueError as error:
        raise ConfigError(
            f"Cannot use shape = {shape!r}: it must be the numbers of a record along "
            "each axis, such as 5. Correct it."
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
    """A number of PyTorch's or NumPy's as Python's own. Other values as they are."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return attempt(value.item)
    return value


def _text(value: Any, _: tuple[int, ...]) -> str:
    return valid_text(name_or_nobody(value))


def _numbers(value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if isinstance(value, Tensor):
        # complex numbers are refused below; bfloat16 is no type of NumPy's
        kind = torch.complex128 if value.is_complex() else torch.float32
        value = value.detach().cpu().to(kind).numpy()
    x = np.asarray(value)
    if x.shape != shape or x.dtype.kind not in "biuf":
        raise ValueError(f"{x.dtype} of shape {x.shape}, not numbers of shape {shape}")
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def _image(value: Any, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    size = shape[0]
    mode = MODE_OF_CHANNELS[shape[2]]
    if isinstance(value, Mapping):  # encoded, as Hugging Face keeps it
        content = value["bytes"]
        file = Path(value["path"]) if content is None else io.BytesIO(content)
        with open_image(file) as image:
            return crop_and_resize(ImageOps.exif_transpose(image), size, mode)
    if not isinstance(value, Image.Image):
        value = _picture(value)
    return crop_and_resize(value, size, mode)


def _picture(value: Any) -> Image.Image:
    """Make an image from pixels, 0 to 255, or from numbers that are clipped to 0
    to 1.
    """
    x = as_array(value)
    if x.dtype.kind == "f" and np.isfinite(x).all():
        x = np.rint(255 * x.clip(0, 1))
    numbers = x.dtype.kind in "iuf" and x.ndim in (2, 3)
    if not numbers or not (x.min() >= 0 and x.max() <= 255):
        raise ValueError(f"{x.dtype} of shape {x.shape} is no image")
    x = _channels_last(x.astype(np.uint8))
    if x.ndim == 3 and x.shape[2] == 1:
        x = x[..., 0]
    return Image.fromarray(x)


# how a record is made, a blank one, its type
_KINDS: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "image": (_image, 0, np.uint8),
    "numbers": (_numbers, 0, np.float32),
    "text": (_text, "", object),
}
