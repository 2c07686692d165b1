"""A client's contribution to a round as one vector of integers, for a secure sum, and
the sum as a contribution again.

The vector holds what `Contribution` adds up: n·θ with what the method sends next to it,
n, n·loss, and the client's part of the ensemble. Counters of a network, which take a
maximum, are not summed: the server's stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedaux.config.methods import find_method
from fedaux.core.arrays import Arrays
from fedaux.messages import TrainOrder, Update
from fedaux.messages.replies import ensemble_shapes
from fedaux.methods.contribution import (
    WEIGHT_BITS,
    Contribution,
    Ensemble,
    FixedSum,
    ModelSum,
)
from fedaux.methods.hooks import Hooks, LocalWork, with_extra

Shapes = Mapping[str, tuple[int, ...]]
_ENSEMBLE = "ensemble."


def to_vector(arrays: Arrays) -> NDArray[np.int64]:
    """Join arrays of integers, in the order of their names."""
    columns = []
    for name in sorted(arrays):
        array = np.asarray(arrays[name], np.int64)
        columns.append(array.ravel())
    return np.concatenate(columns)


def from_vector(vector: NDArray[np.int64], shapes: Shapes) -> Arrays:
    """Split a vector into arrays again."""
    names = sorted(shapes)
    ends = np.cumsum([int(np.prod(shapes[name])) for name in names])
    arrays = {}
    for name, values in zip(names, np.split(vector, ends[:-1]), strict=True):
        arrays[name] = values.reshape(shapes[name])
    return arrays


def vector_length(shapes: Shapes) -> int:
    return sum(int(np.prod(shape)) for shape in shapes.values())


def update_shapes(order: TrainOrder, hooks: Hooks) -> Shapes:
    """Return the shapes of the arrays that a reply to this order is summed as."""
    start = order.weights["parameters"].astype(np.float32, copy=False)
    work = LocalWork(1, order.lr, order.optimizer, order.momentum, order.mu)
    extra = hooks.client_update(start, start, work, order.broadcast, {}).extra
    models = _floats(with_extra(order.weights, extra))
    shapes = {name: array.shape for name, array in models.items()}
    shapes["n"] = (1,)
    shapes["loss"] = (1,)
    if find_method(order.method).teachers == "bayesian":
        shapes["squares"] = start.shape
    if order.teaching:
        for name, shape in ensemble_shapes(order).items():
            shapes[f"{_ENSEMBLE}{name}"] = shape
    return shapes


def summed_update(order: TrainOrder, update: Update, hooks: Hooks) -> NDArray[np.int64]:
    """Return a client's own vector; raise a ValueError if a number is not finite or far
    too large.
    """
    records = update.records if hooks.weighted else 1
    squares = find_method(order.method).teachers == "bayesian"
    sent = _floats(with_extra(update.weights, update.extra))
    model = ModelSum.of(sent, records, squares)
    loss = FixedSum.of(np.array([update.loss]), float(records), WEIGHT_BITS)
    arrays = {name: total.steps for name, total in model.sums.items()}
    arrays["n"] = np.array([records])
    arrays["loss"] = loss.steps
    for name, steps in update.ensemble.items():
        arrays[f"{_ENSEMBLE}{name}"] = steps
    return to_vector(arrays)


def summed_contribution(
    total: NDArray[np.int64], order: TrainOrder, hooks: Hooks, label: str, clients: int
) -> tuple[Contribution, int, float]:
    """Return the contribution of all clients in a sum, their records, and their mean
    loss.
    """
    arrays = from_vector(total, update_shapes(order, hooks))
    records = int(arrays.pop("n")[0])
    summed_loss = float(arrays.pop("loss")[0]) * 2.0**-WEIGHT_BITS
    taught = {}
    for name in sorted(arrays):
        if name.startswith(_ENSEMBLE):
            taught[name.removeprefix(_ENSEMBLE)] = arrays.pop(name)
    sums = {}
    for name, steps in arrays.items():
        sums[name] = FixedSum.from_steps(steps, WEIGHT_BITS)
    counters = {
        name: values for name, values in order.weights.items() if name not in arrays
    }
    model = ModelSum(sums, counters, records)
    contribution = Contribution({label: model}, clients=clients)
    if taught:
        contribution.ensemble = Ensemble.from_arrays(taught)
        contribution.teachers = clients
    return contribution, records, summed_loss / max(1, records)


def _floats(arrays: Arrays) -> Arrays:
    return {
        name: values
        for name, values in arrays.items()
        if np.issubdtype(values.dtype, np.floating)
    }
