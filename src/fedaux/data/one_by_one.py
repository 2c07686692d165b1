"""Records of another library's dataset at a site, each made by itself into what the settings or the schema say.

A value that cannot be made into it becomes a blank record without a class. Nothing is stacked, so no value decides on
the type or the shape of others.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from fedaux.config.parsing import ConfigError
from fedaux.data.image_folder import CHANNELS, crop_and_resize, open_image, own_format
from fedaux.data.labels import DeclaredClasses
from fedaux.data.persons import factorize, name_or_nobody
from fedaux.data.record_spec import RecordSpec
from fedaux.data.records import UNDECLARED, Records
from fedaux.data.text import valid_text

Shape = int | str | Sequence[int | str]
Item = tuple[Any, Any, Any]  # record, label, person; None is missing, or could not be read
MODES = {channels: mode for mode, channels in CHANNELS.items()}


def chosen_spec(size: int | None, mode: str, shape: Shape | None) -> RecordSpec | None:
    """What the settings say: images of a `size` and `mode`, or numbers of a `shape`; None if they say nothing."""
    if size is not None:
        width, channels = own_format(size, mode)
        return RecordSpec("image", (width, width, channels))
    if shape is None:
        return None
    try:
        return RecordSpec("numbers", tuple(map(int, (shape,) if isinstance(shape, (int, str)) else shape)))
    except ValueError as error:
        raise ConfigError(f"shape = {shape!r} must be the numbers of a record along each axis, such as 5.") from error


def attempt(read: Callable[..., Any], *arguments: Any) -> Any:
    """What is read, or None: code of others decodes a record, and may fail for it in any way."""
    try:
        return read(*arguments)
    except Exception:
        return None


def read_one_by_one(items: Iterable[Item], count: int, spec: RecordSpec, classes: DeclaredClasses) -> Records:
    """`count` records of the kind and shape of `spec`, with labels among `classes` and the ids of persons."""
    make, blank, dtype = _KINDS[spec.kind]
    x: NDArray[Any] = np.full((count, *spec.shape), blank, dtype)
    y, persons = np.full(count, UNDECLARED, np.int64), []
    for place, (value, label, person) in enumerate(items):
        made = attempt(make, value, spec.shape)
        if made is not None:
            x[place], y[place] = made, classes.label(_plain(label))
        persons.append(name_or_nobody(_plain(person)))
    return Records(x, y, person=factorize(persons))


def _plain(value: Any) -> Any:
    """A number of PyTorch's or NumPy's as Python's own; other values as they are."""
    return attempt(value.item) if isinstance(value, (Tensor, np.ndarray, np.generic)) else value


def _text(value: Any, _: tuple[int, ...]) -> str:
    return valid_text(name_or_nobody(value))


def _numbers(value: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if isinstance(value, Tensor):
        value = value.detach().cpu().to(torch.complex128 if value.is_complex() else torch.float32).numpy()
    x = np.asarray(value)
    if x.shape != shape or x.dtype.kind not in "biuf":
        raise ValueError(f"{x.dtype} of shape {x.shape}, not numbers of shape {shape}")
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def _image(value: Any, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    size, mode = shape[0], MODES[shape[2]]
    if isinstance(value, Mapping):  # encoded, as Hugging Face keeps it
        file = Path(value["path"]) if value["bytes"] is None else io.BytesIO(value["bytes"])
        with open_image(file) as image:
            return crop_and_resize(ImageOps.exif_transpose(image), size, mode)
    return crop_and_resize(value if isinstance(value, Image.Image) else _picture(value), size, mode)


def _picture(value: Any) -> Image.Image:
    """From an array of pixels, 0 to 255, or of numbers from 0 to 1, beyond which they are clipped."""
    x = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if x.dtype.kind == "f" and np.isfinite(x).all():
        x = np.rint(255 * x.clip(0, 1))
    if x.dtype.kind not in "iuf" or x.ndim not in (2, 3) or not (x.min() >= 0 and x.max() <= 255):
        raise ValueError(f"{x.dtype} of shape {x.shape} is no image")
    x = x.astype(np.uint8)
    x = x.transpose(1, 2, 0) if channels_first(x) else x
    return Image.fromarray(x[..., 0] if x.ndim == 3 and x.shape[2] == 1 else x)


def channels_first(x: NDArray[Any]) -> bool:
    """Whether an image of uint8 has its channels in front, and cannot have them behind."""
    return x.dtype == np.uint8 and x.ndim == 3 and x.shape[0] in MODES and x.shape[2] not in MODES


_KINDS: dict[str, tuple[Callable[..., Any], Any, Any]] = {  # how a record is made, a blank one, its type
    "image": (_image, 0, np.uint8),
    "numbers": (_numbers, 0, np.float32),
    "text": (_text, "", object),
}
