"""What a method does beyond its row of the table: at most five hooks, on a model's
parameters as one flat vector.

No hook ever sees a record, a gradient of one, or a loss. Whatever a method adds to the
(already noisy, if private) gradient, sends or keeps is computed from models, and from
numbers that the order or the client's settings name: it is post-processing of the
trained model, so private training stays private under any method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.methods import find_method
from fedaux.config.sections import OPTIMIZERS
from fedaux.core.arrays import Arrays

if TYPE_CHECKING:
    from torch import Tensor

ModelVector = NDArray[np.floating]  # float32, all parameters of a model, (P,)


@dataclass(frozen=True)
class LocalWork:
    """Facts about the local training that a client's update may need."""

    steps: int  # of the optimiser
    lr: float
    optimizer: str  # adam or sgd
    momentum: float
    mu: float  # of FedProx's term


@dataclass(frozen=True, eq=False)
class ClientUpdate:
    """The message of a client, and the state that it keeps until it is next selected."""

    parameters: ModelVector  # the model to send, (P,)
    # sent next to the model, and averaged like it
    extra: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)  # kept by the client, never sent


class Hooks:
    """The five steps of a round that a method may change, as they stand, they are
    FedAvg.

    Subclasses are frozen dataclasses. Their fields are the options of the method.
    Running statistics of a network (buffers, counters) are averaged by every method,
    and do not pass through the hooks.
    """

    # clients count in proportion to their records in all means; False: all equally
    weighted = True
    # local optimisers that the method is meant for
    optimizers = OPTIMIZERS
    # whether what clients send survives federation.precision = "float16"
    half_precision = True
    # whether `client_update` returns state: no secure sums then, for states can differ
    # by site
    keeps_state = False
    # whether it is an `AnalyticHead`, which computes a head from sums of features
    computes_head = False

    def server_state(self, theta: ModelVector) -> Arrays:
        """Return the server's state before the first round.

        Args:
            theta: The parameters of the first model, (P,).

        Returns:
            Arrays that the server keeps between rounds, by name.
        """
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        """Return the arrays that the server sends next to the model each round.

        Args:
            state: The server's state.

        Returns:
            Arrays by name, which clients get as `received`.
        """
        return {}

    def gradient_term(
        self,
        theta: Tensor,
        start: Tensor,
        received: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> Tensor | None:
        """Return the term that is added to the gradient at each local step.

        Args:
            theta: The current parameters, (P,).
            start: The parameters that the server sent, (P,).
            received: The arrays of `broadcast`.
            state: The client's state, empty the first time.

        Returns:
            The term, (P,), or None for no term.
        """
        return None

    def client_update(
        self,
        start: ModelVector,
        trained: ModelVector,
        work: LocalWork,
        received: Arrays,
        state: Arrays,
    ) -> ClientUpdate:
        """Return the message and the state of a client after its local training.

        Args:
            start: The parameters that the server sent, (P,).
            trained: The parameters after training, (P,).
            work: Steps, learning rate and optimiser of the training.
            received: The arrays of `broadcast`.
            state: The client's state, empty the first time.

        Returns:
            The update. The names and shapes of its `extra` must not depend on `trained`
            or `state`.
        """
        return ClientUpdate(trained)

    def server_step(
        self,
        theta: ModelVector,
        mean: ModelVector,
        extra: Arrays,
        fraction: float,
        state: Arrays,
    ) -> tuple[ModelVector, Arrays]:
        """Return the next model and the server's next state.

        Args:
            theta: The parameters that the server sent, (P,).
            mean: The mean of the clients' parameters, (P,).
            extra: The means of the clients' extra arrays.
            fraction: The fraction of all clients that contributed.
            state: The server's state.

        Returns:
            The next parameters, (P,), and the next state.
        """
        return mean, state


def hooks_of(method: str, options: Mapping[str, Any]) -> Hooks:
    """Return the hooks of a method by name. Those of FedAvg if its row names none."""
    made = find_method(method).make_hooks(options)
    return Hooks() if made is None else made


_EXTRA = "extra."


def with_extra(weights: Arrays, extra: Arrays) -> Arrays:
    """Join a model and its extra arrays into one set of arrays, which are checked,
    summed and averaged alike.
    """
    return {**weights, **{f"{_EXTRA}{name}": values for name, values in extra.items()}}


def without_extra(arrays: Arrays) -> tuple[Arrays, Arrays]:
    """Split the arrays of `with_extra` into the model and the extra arrays."""
    extra = {name: values for name, values in arrays.items() if name.startswith(_EXTRA)}
    weights = {name: values for name, values in arrays.items() if name not in extra}
    return weights, {
        name.removeprefix(_EXTRA): values for name, values in extra.items()
    }


def next_model(
    hooks: Hooks, weights: Arrays, state: Arrays, mean: Arrays, fraction: float
) -> tuple[Arrays, Arrays]:
    """Turn the mean of a round into the next model: (weights, the method's next
    state).
    """
    model, extra = without_extra(mean)
    theta, state = hooks.server_step(
        weights["parameters"], model["parameters"], extra, fraction, state
    )
    return {**model, "parameters": np.asarray(theta, np.float32)}, state
