"""Records, rows of x with optional labels: lazy views of arrays that may be
memory-mapped, and what a model takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaux.core.errors import FedauxError

if TYPE_CHECKING:
    from fedaux.data.table_schema import TableSchema

Indices = NDArray[np.int64]

RECORD_KINDS = ("image", "numbers", "text")
SCALING = "(x - 127.5) / 63.75, then channels first"  # of images, as in `to_tensor`
CHANNEL_COUNTS = (1, 3, 4)  # that an image may have: grey, RGB, RGBA
UNDECLARED = -1  # the label of a record whose label is missing or not a declared class


@dataclass(frozen=True, eq=False)
class Records:
    """Records with optional labels: the rows `x[rows]` with labels `y[rows]`.

    Attributes:
        x: uint8 images (N, H, W, C), float numbers (N, ...) or an array of `str`,
            possibly a memory map, or what is read like one (`table_rows.EncodedRows`).
        y: The class of each row of `x`, from 0, or None for unlabelled data.
        rows: Positions in `x` of these records, or None for all.
        person: The id of the person each row of `x` belongs to, if the source knows it.
    """

    x: NDArray[Any]
    y: NDArray[np.int64] | None = None
    rows: Indices | None = None
    person: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.x) if self.rows is None else len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row as a model input: images are channels first."""
        shape = tuple(self.x.shape[1:])
        if is_image(self.x):
            return shape[2], shape[0], shape[1]
        return shape

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each record, from 0 on, or `UNDECLARED`. An error if there are
        no labels.
        """
        if self.y is None:
            raise ValueError(
                "Cannot use these records: these records have no labels. Private and "
                "test data need them, auxiliary data does not."
            )
        return self.y if self.rows is None else self.y[self.rows]

    @property
    def persons(self) -> NDArray[np.int64]:
        """The person's id of each record. An error if the source does not know it."""
        if self.person is None:
            raise ValueError(
                "Cannot protect people: these records name no people. Set data.person."
            )
        return self.person if self.rows is None else self.person[self.rows]

    def take(self, positions: Indices) -> Records:
        """Return a view of the records at `positions`."""
        rows = positions if self.rows is None else self.rows[positions]
        return replace(self, rows=rows)

    def unlabelled(self) -> Records:
        """Return a view without labels."""
        return replace(self, y=None)

    def gather(self, positions: Indices | slice = slice(None)) -> NDArray[Any]:
        """Return a copy of the rows in memory."""
        if self.rows is not None:
            return np.asarray(self.x[self.rows[positions]])
        picked = self.x[positions]
        if isinstance(positions, slice):  # which is a view
            return np.array(picked)
        return np.asarray(picked)

    def tensor(self, positions: Indices | slice = slice(None)) -> Tensor:
        """Return the rows as a float32 model input (see `to_tensor`)."""
        return to_tensor(self.gather(positions))

    def batch(
        self, positions: Indices | slice = slice(None), *, view: bool = False
    ) -> Any:
        """Return the rows as a model input: a tensor, or for text the strings, which
        the prototype tokenises.

        Args:
            positions: Which of the records. By default all.
            view: Avoid a copy of rows that are in memory, for a model that does not
                modify its input.

        Returns:
            A float32 tensor, or a list of strings.
        """
        # `to_tensor` copies images
        if self.rows is None and is_writeable(self.x) and (view or is_image(self.x)):
            return to_tensor(self.x[positions])
        rows = self.gather(positions)
        if is_text(rows):
            return rows
        return to_tensor(rows)

    def blocks(self, size: int) -> Iterator[slice]:
        """Yield consecutive slices of at most `size` rows that cover all records."""
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))


def as_array(values: Any) -> NDArray[Any]:
    """Return arrays, lists and tables as NumPy has them, and tensors of any device."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
    return np.asarray(values)


def is_writeable(x: NDArray[Any]) -> bool:
    """Whether this is an array in memory, and neither a memory map nor read like one."""
    return isinstance(x, np.ndarray) and x.flags.writeable


def is_image(x: NDArray[Any]) -> bool:
    return x.dtype == np.uint8 and x.ndim == 4


def channels_first(x: NDArray[Any]) -> bool:
    """Whether these are images whose channels can only be the first axis of a
    record.
    """
    if not is_image(x):
        return False
    return x.shape[1] in CHANNEL_COUNTS and x.shape[3] not in CHANNEL_COUNTS


def is_text(x: NDArray[Any]) -> bool:
    return x.dtype.kind in "OUT"


def is_table(x: NDArray[Any]) -> bool:
    """Whether records are rows of numbers."""
    return x.ndim == 2 and not is_text(x)


def to_tensor(x: NDArray[Any]) -> Tensor:
    """uint8 images (B, H, W, C) → float32 (B, C, H, W), scaled by constants; numbers
    are only cast to float32.

    The scale is constant because statistics of private data would be another release to
    account for.
    """
    if is_image(x):
        images = torch.from_numpy(np.ascontiguousarray(x)).permute(0, 3, 1, 2)
        return images.float().sub_(127.5).div_(63.75)
    with np.errstate(over="ignore"):  # a number beyond float32 is infinite
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


@dataclass(frozen=True, eq=False)
class Corpus:
    """The data of one source.

    Attributes:
        train: The training records. Auxiliary data needs no labels.
        test: The test records. None means part of `train` is held out.
        classes: The names of labels 0, 1, …. Without them the numbers are the names.
        notes: Remarks for the user: images that could not be read, …
        site: The client of each training record, for data.partition = "given".
        schema: What the columns of a table are, by which its records are encoded.
    """

    train: Records
    test: Records | None = None
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    site: NDArray[np.int64] | None = None
    schema: TableSchema | None = None

    def map(self, change: Callable[[Records], Records]) -> Corpus:
        """Return a copy in which `change` has been applied to training and test
        records.
        """
        changed = replace(self, train=change(self.train))
        if self.test is None:
            return changed
        return replace(changed, test=change(self.test))


class RecordsError(FedauxError, ValueError):
    """A model cannot take these records."""


@dataclass(frozen=True)
class RecordSpec:
    """Kind and shape of a raw record: images are (height, width, channels), text has
    shape ().
    """

    kind: str
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        valid = all(type(size) is int and size > 0 for size in self.shape)
        if self.kind == "image":
            valid = valid and len(self.shape) == 3
        if self.kind not in RECORD_KINDS or not valid:
            raise ValueError(
                f"there are no records of kind {self.kind!r} and shape {self.shape}"
            )

    @classmethod
    def of(cls, records: Records) -> Self:
        if is_text(records.x):
            return cls("text")
        kind = "image" if is_image(records.x) else "numbers"
        return cls(kind, tuple(records.x.shape[1:]))

    @classmethod
    def from_card(cls, card: dict[str, Any]) -> Self:
        return cls(card["kind"], tuple(card["shape"]))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one network input: images are channels first."""
        if self.kind == "image":
            return self.shape[2], *self.shape[:2]
        return self.shape

    @property
    def description(self) -> str:
        if self.kind == "text":
            return "a list of texts"
        name = "uint8 images" if self.kind == "image" else "numbers"
        shape = ", ".join(map(str, ("N", *self.shape)))
        return f"{name} of shape ({shape})"

    def to_card(self) -> dict[str, Any]:
        """Return the entry of a model card: everything needed to feed the network from
        another program.
        """
        if self.kind == "text":
            return {"kind": "text", "shape": []}
        entry: dict[str, Any] = {"kind": self.kind, "shape": list(self.shape)}
        if self.kind == "numbers":
            return {**entry, "dtype": "float32"}
        layout = ["height", "width", "channels"]
        return {
            **entry,
            "dtype": "uint8",
            "layout": layout,
            "network_sees": list(self.input_shape),
            "scaling": SCALING,
        }

    def validate(self, records: Any) -> NDArray[Any]:
        """Return the records as an array for `Records`; raise an error that says what
        is wrong if they do not match.
        """
        if self.kind == "text":
            return _texts(records)
        try:
            x = np.asarray(records)
        except ValueError as error:
            raise RecordsError(
                f"Cannot read the records: this model takes {self.description}, and "
                "these are not all of one shape. Give them one shape."
            ) from error
        if x.ndim == 0 or x.shape[1:] != self.shape:
            hint = ", and a single record x as x[None]" * (x.shape == self.shape)
            raise RecordsError(
                f"Cannot read the records: this model takes {self.description}, not of "
                f"shape {x.shape}. Give records of this shape{hint}."
            )
        if self.kind == "image":
            if x.dtype != np.uint8:
                raise RecordsError(
                    f"Cannot read the records: this model takes {self.description}, "
                    f"not {x.dtype}. Give pixels from 0 to 255, which it scales itself."
                )
            return x
        if x.dtype.kind not in "fiub":
            raise RecordsError(
                f"Cannot read the records: this model takes numbers, not {x.dtype}. "
                "Convert them with .astype('float32')."
            )
        with np.errstate(over="ignore"):
            rows = x.astype(np.float32)
        finite = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
        if not finite.all():
            raise RecordsError(
                f"Cannot read the records: record {int(finite.argmin())} has a number "
                "that is missing, infinite or beyond float32. Correct it, or take the "
                "record out."
            )
        return rows


def _texts(records: Any) -> NDArray[Any]:
    if isinstance(records, str):
        raise RecordsError(
            "Cannot read the records: this model takes a list of texts. Give a single "
            "text as [text]."
        )
    texts = list(records)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise RecordsError(
                "Cannot read the records: this model takes a list of texts, and record "
                f"{index} is a {type(text).__name__}. Convert it."
            )
    return np.array(texts, dtype=object)
