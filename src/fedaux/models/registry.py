"""Prototypes, f(x) = head(features(x)), and the registry of their networks.

A network is a function `(shape, **options) → nn.Module` that returns a feature
extractor with an integer attribute `width`, the number of features H. A configuration
names it by its registered name or as `module:function`. An extractor with published
weights has an attribute `published_weights`, their folder, and a method `restore()`
that loads them: the result of P1 without the work, at every site that has the folder.
`build` never loads them.

Heads are trained on features of h0, by default standardised with the mean and deviation
of public ones. Raw features are neither centred nor of one scale: a step along their
common mean moves all logits at once, and no rate fits every feature. With mean 0 and
deviation 1 one rate fits all. The statistics are those of D⁻, so they are public.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.arrays import Arrays
from fedaux.core.errors import (
    Exit,
    FedauxError,
    import_function,
    unknown_name,
    user_code,
)
from fedaux.core.rng import seeded_torch
from fedaux.models.compute import compute_of, place

# (shape of one row, **options) → feature extractor with an int `width`
Factory = Callable[..., nn.Module]
AnyFactory = TypeVar("AnyFactory", bound=Factory)

# of the root mean square deviation: a feature that hardly varies in public is not blown
# up
FLOOR = 0.01
RANDOM_SEED = 0  # of the random features: the same at the server and at every client
OTHER_SEED = 0x5EED  # of a second network to compare with
_factories: dict[str, Factory] = {}
# (name of the library's, shape, **options) → extractor
_libraries: dict[str, Callable[..., nn.Module]] = {}
_build_lock = threading.RLock()  # `build` seeds the generator of the whole process


class UnsupportedNetworkError(FedauxError, ValueError):
    """No features can be taken from a user's network."""

    code = Exit.SETTINGS


class Prototype(nn.Module):
    """f = head ∘ features with `features` (B, *shape) → (B, H) and a linear `head` (B,
    H) → (B, classes).
    """

    def __init__(self, features: nn.Module, classes: int) -> None:
        super().__init__()
        width = getattr(features, "width", None)
        if not isinstance(width, int) or width < 1:
            raise ValueError(
                f"Cannot use the model: {type(features).__name__} has width={width!r}. "
                "Give the feature extractor an attribute `width`, the number of "
                "features it returns for one row."
            )
        if classes < 2:
            raise ValueError(
                "Cannot build the network: a classifier needs at least 2 classes, not "
                f"{classes}. Check the labels of the source."
            )
        self.width: int = width
        self.features = features
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def standardisation(negatives: NDArray[np.floating]) -> Arrays:
    """Mean and deviation (H,) of the public features, (|D⁻|, H)."""
    mean = negatives.mean(axis=0, dtype=np.float64)
    deviation = negatives.std(axis=0, dtype=np.float64)
    least = FLOOR * np.sqrt(np.mean(np.square(deviation)))
    deviation = np.maximum(deviation, least) if least > 0 else np.ones_like(deviation)
    return {"mean": mean.astype(np.float32), "deviation": deviation.astype(np.float32)}


class HeadFeatures(nn.Module):
    """(B, H) → (B, width): h0's features as a head takes them. Fixed and public: no
    weight of it trains or travels.

    `random` > 0 is a number of random features of them, ReLU(A z + a) with A and a from
    a fixed seed.
    """

    mean: Tensor
    deviation: Tensor
    projection: Tensor
    offset: Tensor

    def __init__(self, inputs: int, random: int = 0) -> None:
        super().__init__()
        self.inputs = inputs
        self.random = random
        self.width = random or inputs
        self.raw = True
        self.register_buffer("mean", torch.zeros(inputs), persistent=False)
        self.register_buffer("deviation", torch.ones(inputs), persistent=False)
        with seeded_torch(RANDOM_SEED):
            projection = torch.randn(random, inputs) / inputs**0.5
            offset = torch.randn(random)
        self.register_buffer("projection", projection, persistent=False)
        self.register_buffer("offset", offset, persistent=False)

    def standardise(self, statistics: Arrays) -> None:
        """Set the mean and deviation that `standardisation` computed. Without them
        features stay raw.
        """
        self.raw = not statistics
        if self.raw:
            return
        shapes = {name: array.shape for name, array in statistics.items()}
        if shapes != {"mean": (self.inputs,), "deviation": (self.inputs,)}:
            raise ValueError(
                f"mean and deviation of {self.inputs} features are expected, not "
                f"{shapes}"
            )
        mean = torch.tensor(statistics["mean"])
        deviation = torch.tensor(statistics["deviation"])
        finite = mean.isfinite().all() and deviation.isfinite().all()
        if not finite or not (deviation > 0).all():
            raise ValueError(
                "the mean and deviation of the features must be finite, and deviations "
                "above 0"
            )
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    def forward(self, x: Tensor) -> Tensor:
        if not self.raw:
            x = (x - self.mean) / self.deviation
        if not self.random:
            return x
        return F.relu(F.linear(x, self.projection, self.offset))

    def on_processor(self) -> HeadFeatures:
        """Return itself, or a copy on the CPU: the heads of many clients train there,
        whatever the device of one.
        """
        if self.mean.device.type == "cpu":
            return self
        twin = HeadFeatures(self.inputs, self.random)
        twin.raw = self.raw
        for copied, original in zip(twin.buffers(), self.buffers(), strict=True):
            copied.copy_(original)
        return twin

    @torch.no_grad()
    def fold(self, head: nn.Linear) -> nn.Linear | nn.Sequential:
        """Return plain layers on h0's own features that compute what `head` computes on
        these features.
        """
        if not self.random:
            return self._on_raw(head.weight, head.bias)
        return nn.Sequential(
            self._on_raw(self.projection, self.offset), nn.ReLU(), head
        )

    @torch.no_grad()
    def unfold(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Reverse `fold` for a linear head on h0's own features: return (weight, bias)
        of the same head on these.
        """
        if self.random:
            raise ValueError(
                "a head on h0's own features cannot be used with random features of "
                "them"
            )
        if self.raw:
            return weight, bias
        weight = weight.double()
        shift = weight @ self.mean.double()
        dtype = self.mean.dtype
        return (weight * self.deviation).to(dtype), (bias + shift).to(dtype)

    def _on_raw(self, weight: Tensor, bias: Tensor) -> nn.Linear:
        layer: nn.Linear = nn.utils.skip_init(
            nn.Linear, weight.shape[1], weight.shape[0]
        )  # type: ignore[no-untyped-call]  # draws nothing
        if not self.raw:
            weight = weight.double() / self.deviation.double()
            bias = bias.double() - weight @ self.mean.double()
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
        return layer


def hidden_head(inputs: int, hidden: int, classes: int) -> nn.Sequential:
    """Return a head of the form that `HeadFeatures.fold` returns for random
    features.
    """
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes)
    )


def linear_head(width: int, classes: int, random: int = 0, seed: int = 0) -> Prototype:
    """A prototype whose inputs are features of h0. `random` is that of
    `HeadFeatures`.
    """
    with _build_lock, seeded_torch(seed):
        return Prototype(HeadFeatures(width, random), classes)


def is_linear_head(module: nn.Module) -> bool:
    """Whether this is a `linear_head`, which does not modify its input."""
    return isinstance(module, Prototype) and isinstance(module.features, HeadFeatures)


def folded(module: nn.Module) -> nn.Module:
    """A `linear_head` without the layer that standardises, which takes longer than the
    head, others as they are.
    """
    if (
        not (
            isinstance(module, Prototype) and isinstance(module.features, HeadFeatures)
        )
        or module.features.raw
    ):
        return module
    return place(module.features.fold(module.head), compute_of(module))


def published_weights(features: nn.Module) -> str:
    """The folder of this extractor's published weights, "" if it has none."""
    return str(getattr(features, "published_weights", "") or "")


def register(name: str) -> Callable[[AnyFactory], AnyFactory]:
    """Register a network: `@register("mine")` above `def mine(shape, depth=3) ->
    nn.Module`.

    The function returns a feature extractor with an integer attribute `width`. Its
    further arguments are options in a configuration: `{name = "mine", depth = 5}`. A
    name cannot be registered for two functions.

    Args:
        name: The name of the network in a configuration.

    Returns:
        A decorator, which returns the function unchanged.
    """

    def add(factory: AnyFactory) -> AnyFactory:
        known = _factories.get(name, factory)
        if (known.__module__, known.__qualname__) != (
            factory.__module__,
            factory.__qualname__,
        ):
            raise ValueError(
                f"Cannot register the prototype: prototype {name!r} is already "
                f"{known.__module__}:{known.__qualname__}. Take another name."
            )
        _factories[name] = factory
        return factory

    return add


def register_library(prefix: str) -> Callable[[AnyFactory], AnyFactory]:
    """Register a function `(name, shape, **options)` for all names that begin with
    `prefix:`.
    """

    def add(factory: AnyFactory) -> AnyFactory:
        _libraries[prefix] = factory
        return factory

    return add


def available() -> tuple[str, ...]:
    """The registered names, in alphabetical order."""
    return tuple(sorted(_factories))


def build(
    spec: PrototypeSpec, shape: tuple[int, ...], classes: int, seed: int
) -> Prototype:
    """The prototype for rows of `shape`, on the CPU; reproducible from the seed,
    without changing global state.
    """
    factory = _lookup(spec.name)
    _check_options(spec, factory)
    with _build_lock, seeded_torch(seed), torch.device("cpu"):
        with user_code("prototype", spec.name):
            arguments = [shape] if _takes_shape(factory) else []
            features = factory(*arguments, **dict(spec.options))
            if not hasattr(features, "width"):
                features = without_last_layer(features, shape, classes)
        return Prototype(features, classes)


def without_last_layer(
    network: nn.Module, shape: tuple[int, ...], classes: int = 0
) -> nn.Module:
    """A user's classifier as a feature extractor: its last linear layer is left out,
    since a head of ours follows. One that is a single layer must be for these classes.
    """
    if isinstance(network, nn.Linear):
        return _logistic_regression(network, shape, classes)
    name = type(network).__name__
    if not isinstance(network, nn.Module):
        raise UnsupportedNetworkError(
            f"Cannot use the model: it is {name}, not a torch.nn.Module. Give a class, "
            "or a function that makes one."
        )
    modules = dict(network.named_modules())
    linear = [path for path in modules if isinstance(modules[path], nn.Linear)]
    advice = (
        "let it end in an nn.Linear whose output it returns, or return features and "
        "give it an integer `width`"
    )
    if not linear or not shape:
        raise UnsupportedNetworkError(
            f"Cannot find the features of {name}: no layer shows where they end. "
            f"Please {advice}."
        )
    path = linear[-1]
    last = modules[path]
    assert isinstance(last, nn.Linear)
    training = network.training
    try:
        with torch.no_grad():
            output, inputs = inputs_of(last, network.eval(), torch.zeros(1, *shape))
            whole = bool(inputs) and inputs[-1].ndim == 2
            if whole:
                whole = torch.equal(last(inputs[-1].clone()), output)
    finally:
        network.train(training)
    if not whole:
        raise UnsupportedNetworkError(
            f"Cannot find the features of {name}: it does not return the output of its "
            f"last linear layer, {path}. Please {advice}."
        )
    parent, _, leaf = path.rpartition(".")
    setattr(network.get_submodule(parent), leaf, nn.Identity())
    network.width = last.in_features  # type: ignore[assignment]
    return network


def _logistic_regression(
    layer: nn.Linear, shape: tuple[int, ...], classes: int
) -> nn.Module:
    """The features of a model that is one linear layer: the numbers of a record."""
    takes = (layer.in_features, layer.out_features)
    if shape != takes[:1] or classes != takes[1]:
        numbers = " × ".join(map(str, shape)) or "no"
        raise UnsupportedNetworkError(
            f"Cannot use the model Linear{takes}: a record has {numbers} numbers, and "
            f"there are {classes} classes. Give nn.Linear({math.prod(shape)}, "
            f"{classes}), after an nn.Flatten() if records have several dimensions."
        )
    features = nn.Flatten()
    features.width = layer.in_features  # type: ignore[assignment]
    return features


def inputs_of(
    layer: nn.Module, network: nn.Module, x: Tensor
) -> tuple[Any, list[Tensor]]:
    """(network(x), what the layer was called with meanwhile)."""
    inputs: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    try:
        return network(x), inputs
    finally:
        hook.remove()


def carried_weights(
    spec: PrototypeSpec, shape: tuple[int, ...], extractor: nn.Module
) -> list[str]:
    """Parameters of a user's own extractor that another seed leaves as they are,
    unless they are constant.

    They were loaded, or come from a seed of their own: a start that a method from
    random weights must not have.
    """
    if _lookup(spec.name).__module__.startswith("fedaux."):
        return []  # `build` loads nothing into these
    other = dict(build(spec, shape, 2, seed=OTHER_SEED).features.named_parameters())
    carried = []
    for name, value in extractor.named_parameters():
        varies = value.numel() > 1 and bool((value != value.flatten()[0]).any())
        if varies and torch.equal(value.cpu(), other[name]):
            carried.append(name)
    return carried


def option_default(name: str, option: str) -> Any:
    """Return the default of a network's option, or None if the network has no such
    option.
    """
    parameter = inspect.signature(_lookup(name)).parameters.get(option)
    return (
        None
        if parameter is None or parameter.default is inspect.Parameter.empty
        else parameter.default
    )


def _lookup(name: str) -> Factory:
    if name in _factories:
        return _factories[name]
    prefix, colon, own = name.partition(":")
    if not colon:
        raise unknown_name(
            "prototype",
            name,
            [*available(), *(f"{key}:NAME" for key in _libraries), "module:function"],
        )
    if prefix in _libraries:
        return partial(_libraries[prefix], own)
    return import_function(name, "prototype")


def _takes_shape(factory: Factory) -> bool:
    """Whether a network is made for a shape. A user's own class may need none."""
    first = next(iter(inspect.signature(factory).parameters.values()), None)
    return (
        first is not None
        and first.default is first.empty
        and first.kind is not first.VAR_KEYWORD
    )


def _check_options(spec: PrototypeSpec, factory: Factory) -> None:
    """Raise on options that the factory does not have, or whose type is not that of the
    default.
    """
    parameters = list(inspect.signature(factory).parameters.values())[
        int(_takes_shape(factory)) :
    ]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    defaults = {parameter.name: parameter.default for parameter in parameters}
    for key, value in spec.options:
        if key not in defaults:
            raise unknown_name(f"option of prototype {spec.name!r}", key, defaults)
        kind = type(defaults[key])
        if (
            kind in (int, float, str, bool)
            and type(value) is not kind
            and (kind, type(value)) != (float, int)
        ):
            raise ValueError(
                f"Cannot build the network: {spec.label}: {key} must be "
                f"{kind.__name__}, not {type(value).__name__} ({value!r}). Correct the "
                "value."
            )
