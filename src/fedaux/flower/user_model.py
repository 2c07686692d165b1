"""A user's own network and rows, as the rest of the package takes them: h0 is the model
as far as its features.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.core.errors import SettingsError
from fedaux.data.labels import factorize, name_or_nobody
from fedaux.data.records import UNDECLARED, Indices, Records, as_array
from fedaux.models.registry import inputs_of
from fedaux.privacy.module_validation import per_record_safe

FeaturesOf = Callable[[Any, Tensor], Tensor]  # (model, x) → (B, H)
# what both sides call the handler: messages are of the type query.fedaux
ACTION = "fedaux"


class UserRecords(Records):
    """Rows exactly as the user's model is called with them: unlike other records, they
    are neither scaled nor cast.
    """

    def batch(
        self, positions: Indices | slice = slice(None), *, view: bool = False
    ) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(self.gather(positions)))

    @classmethod
    def of(cls, x: Any, labels: Any = None, persons: Any = None) -> UserRecords:
        """Make records of arrays or tensors, one row per record. Labels other than
        whole numbers from 0 are void.
        """
        rows = as_array(x)
        if rows.dtype == np.float64:
            rows = rows.astype(np.float32)  # models are float32
        y = None if labels is None else _labels(as_array(labels))
        if len(rows) == 0 or (y is not None and y.shape != (len(rows),)):
            shape = "none" if y is None else y.shape
            raise SettingsError(
                f"{len(rows)} rows came with labels of shape {shape}: give at least "
                "one, each its label"
            )
        if persons is None:
            return cls(rows, y)
        person = as_array(persons)
        if person.shape != (len(rows),):
            raise SettingsError(
                f"{len(rows)} rows came with persons of shape {person.shape}: give "
                "each row its person"
            )
        return cls(rows, y, person=factorize(map(name_or_nobody, person.tolist())))


def _labels(values: NDArray[Any]) -> NDArray[np.int64]:
    """Convert each label by itself, since a single missing one turns the whole array
    into floats or objects.
    """
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    return np.array([_label(value) for value in values.tolist()], dtype=np.int64)


def _label(value: Any) -> int:
    valid = (
        isinstance(value, (int, float)) and 0 <= value < 2**53 and value == int(value)
    )
    return int(value) if valid else UNDECLARED


@per_record_safe  # it remembers nothing; the model inside is checked by itself
class UserExtractor(nn.Module):
    """The model up to its features, (B, *shape) → (B, H). It holds all of the model's
    weights.
    """

    def __init__(self, model: nn.Module, features: str | FeaturesOf) -> None:
        super().__init__()
        self.model = model
        self._of = _named(features) if isinstance(features, str) else features

    def forward(self, x: Tensor) -> Tensor:
        return self._of(self.model, x).flatten(1)


def _named(name: str) -> FeaturesOf:
    def features(model: nn.Module, x: Tensor) -> Tensor:
        try:
            part = attrgetter(name)(model)
        except AttributeError as error:
            raise SettingsError(
                f"features = {name!r} names nothing in {type(model).__name__}: give "
                "the name of the layer or method "
                'that returns the features, a function of (model, x), or input_of("NAME") with that of the last layer'
            ) from error
        output: Tensor = part(x)
        return output

    return features


def input_of(layer: str) -> FeaturesOf:
    """Take the input of a layer as the features of a model, for a model that has no
    layer or method that returns them.

    Args:
        layer: The name of the layer, usually the last one.

    Returns:
        A function of (model, x), for the argument `features` of `FedAUX` and
        `add_release_handler`.
    """

    def features(model: nn.Module, x: Tensor) -> Tensor:
        try:
            last = model.get_submodule(layer)
        except AttributeError as error:
            names = ", ".join(name for name, _ in model.named_children())
            raise SettingsError(
                f"input_of({layer!r}): {type(model).__name__} has {names}, and no such "
                "layer"
            ) from error
        return inputs_of(last, model, x)[1][-1]

    return features
