"""What a method does beyond its row of the table: at most five hooks, on a model's parameters as one flat vector.

No hook ever sees a record, a gradient of one, or a loss. Whatever a method adds to the (already noisy, if private)
gradient, sends or keeps is computed from models, and from numbers that the order or the client's settings name: it is
post-processing of the trained model, so private training stays private under any method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.methods import find_method
from fedaux.core.messages import Arrays

if TYPE_CHECKING:
    from torch import Tensor

OPTIMIZERS: tuple[str, ...] = ("adam", "sgd")
Vector = NDArray[np.floating]  # float32, all parameters of a model, (P,)


@dataclass(frozen=True)
class LocalWork:
    """A client's training as its update needs to know it."""

    steps: int  # of the optimiser
    lr: float
    optimizer: str  # adam or sgd
    momentum: float
    mu: float  # of FedPROX's term


@dataclass(frozen=True, eq=False)
class ClientUpdate:
    """What a client sends, and what it keeps until it is asked again."""

    parameters: Vector
    extra: Arrays = field(default_factory=dict)  # sent beside the model, and averaged as it is
    state: Arrays = field(default_factory=dict)  # kept by the client, never sent


class Hooks:
    """The five hooks, which together are FedAVG. A method overrides what it does differently.

    Subclasses are frozen dataclasses; their fields are the options of the method. Running statistics of a network
    (buffers, counters) are averaged whatever the method is, and do not pass through hooks.
    """

    weighted = True  # clients count by their records in all means; False: all alike
    optimizers = OPTIMIZERS  # local ones that the method is meant for
    half_precision = True  # whether what clients send survives federation.precision = "float16"
    computes_head = False  # whether it is an `AnalyticHead`, which takes sums of features

    def server_state(self, theta: Vector) -> Arrays:
        """What the server keeps between rounds, before the first one. `theta` is the first model."""
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        """What the server sends beside the model."""
        return {}

    def gradient_term(
        self, theta: Tensor, start: Tensor, received: Mapping[str, Tensor], state: Mapping[str, Tensor]
    ) -> Tensor | None:
        """What is added to the gradient at each local step, (P,). `state` is the client's own, empty at first."""
        return None

    def client_update(
        self, start: Vector, trained: Vector, work: LocalWork, received: Arrays, state: Arrays
    ) -> ClientUpdate:
        """What a client sends and keeps. The names and shapes of `extra` must not depend on `trained` or `state`."""
        return ClientUpdate(trained)

    def server_step(
        self, theta: Vector, mean: Vector, extra: Arrays, fraction: float, state: Arrays
    ) -> tuple[Vector, Arrays]:
        """The next model and state. `mean` and `extra` are means of what `fraction` of all clients sent."""
        return mean, state


def hooks_of(method: str, options: Mapping[str, Any]) -> Hooks:
    """The hooks of a method by name; those of FedAVG where its row names none."""
    made = find_method(method).make_hooks(options)
    return Hooks() if made is None else made


_EXTRA = "extra."


def with_extra(weights: Arrays, extra: Arrays) -> Arrays:
    """A model and the extra arrays beside it as one set of arrays, to be checked, summed and averaged alike."""
    return {**weights, **{f"{_EXTRA}{name}": values for name, values in extra.items()}}


def without_extra(arrays: Arrays) -> tuple[Arrays, Arrays]:
    """The model and the extra arrays again."""
    extra = {name: values for name, values in arrays.items() if name.startswith(_EXTRA)}
    weights = {name: values for name, values in arrays.items() if name not in extra}
    return weights, {name.removeprefix(_EXTRA): values for name, values in extra.items()}


def next_model(hooks: Hooks, weights: Arrays, state: Arrays, mean: Arrays, fraction: float) -> tuple[Arrays, Arrays]:
    """The round's mean becomes the next model: (weights, the method's next state)."""
    model, extra = without_extra(mean)
    theta, state = hooks.server_step(weights["parameters"], model["parameters"], extra, fraction, state)
    return {**model, "parameters": np.asarray(theta, np.float32)}, state
