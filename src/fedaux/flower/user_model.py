"""A user's own network, as the rest of the package takes it: h0 is the model as far as
its features.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from torch import Tensor, nn

from fedaux.core.errors import SettingsError
from fedaux.models.registry import inputs_of
from fedaux.privacy.module_validation import per_record_safe

FeaturesOf = Callable[[Any, Tensor], Tensor]  # (model, x) → (B, H)
# what both sides call the handler: messages are of the type query.fedaux
ACTION = "fedaux"


@per_record_safe  # it remembers nothing; the model inside is checked separately
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
                f"Cannot compute features: features = {name!r} names nothing in "
                f"{type(model).__name__}. Give the name of the layer or method that "
                'returns the features, a function of (model, x), or input_of("NAME") '
                "with that of the last layer."
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
                f"Cannot compute features: input_of({layer!r}) is not in "
                f"{type(model).__name__}, which has {names}. Name one of its layers."
            ) from error
        return inputs_of(last, model, x)[1][-1]

    return features
