"""Kind and shape of the records that a model takes, and validation of records against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedaux.core.errors import FedauxError
from fedaux.data.records import Records, is_image, is_text

KINDS = ("image", "numbers", "text")
SCALING = "(x - 127.5) / 63.75, then channels first"  # of images, as in `to_tensor`


class RecordsError(FedauxError, ValueError):
    """Records that a model cannot take."""


@dataclass(frozen=True)
class RecordSpec:
    """Kind and shape of a raw record: images are (height, width, channels), text has shape ()."""

    kind: str
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        positive = all(type(size) is int and size > 0 for size in self.shape)
        if self.kind not in KINDS or not positive or (self.kind == "image" and len(self.shape) != 3):
            raise ValueError(f"there are no records of kind {self.kind!r} and shape {self.shape}")

    @classmethod
    def of(cls, records: Records) -> Self:
        if is_text(records.x):
            return cls("text")
        return cls("image" if is_image(records.x) else "numbers", tuple(records.x.shape[1:]))

    @classmethod
    def from_card(cls, card: dict[str, Any]) -> Self:
        return cls(card["kind"], tuple(card["shape"]))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one network input: images are channels first."""
        return (self.shape[2], *self.shape[:2]) if self.kind == "image" else self.shape

    @property
    def description(self) -> str:
        if self.kind == "text":
            return "a list of texts"
        name = "uint8 images" if self.kind == "image" else "numbers"
        return f"{name} of shape ({', '.join(map(str, ('N', *self.shape)))})"

    def to_card(self) -> dict[str, Any]:
        """For a model card: everything needed to feed the network from another program."""
        if self.kind == "text":
            return {"kind": "text", "shape": []}
        facts: dict[str, Any] = {"kind": self.kind, "shape": list(self.shape)}
        if self.kind == "numbers":
            return {**facts, "dtype": "float32"}
        layout = ["height", "width", "channels"]
        return {**facts, "dtype": "uint8", "layout": layout, "network_sees": list(self.input_shape), "scaling": SCALING}

    def validate(self, records: Any) -> NDArray[Any]:
        """The records as an array for `Records`; an error that says what is wrong if they do not match."""
        if self.kind == "text":
            return _texts(records)
        try:
            x = np.asarray(records)
        except ValueError as error:
            raise RecordsError(
                f"this model takes {self.description}; these records are not all of one shape"
            ) from error
        if x.ndim == 0 or x.shape[1:] != self.shape:
            hint = "; a single record x goes in as x[None]" if x.shape == self.shape else ""
            raise RecordsError(f"this model takes {self.description}, not of shape {x.shape}{hint}")
        if self.kind == "image":
            if x.dtype != np.uint8:
                raise RecordsError(
                    f"this model takes {self.description}, not {x.dtype}: "
                    "give pixels from 0 to 255, it scales them itself"
                )
            return x
        return _numbers(x)


def _numbers(x: NDArray[Any]) -> NDArray[np.float32]:
    if x.dtype.kind not in "fiub":
        raise RecordsError(f"this model takes numbers, not {x.dtype}; convert them with .astype('float32')")
    with np.errstate(over="ignore"):
        rows = x.astype(np.float32)
    finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    if not finite.all():
        raise RecordsError(f"record {int(finite.argmin())} has a number that is missing, infinite or beyond float32")
    return rows


def _texts(records: Any) -> NDArray[Any]:
    if isinstance(records, str):
        raise RecordsError("this model takes a list of texts; a single text goes in as [text]")
    texts = list(records)
    bad = next((index for index, text in enumerate(texts) if not isinstance(text, str)), None)
    if bad is not None:
        raise RecordsError(f"this model takes a list of texts; record {bad} is a {type(texts[bad]).__name__}")
    return np.array(texts, dtype=object)
