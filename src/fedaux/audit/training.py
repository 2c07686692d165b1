"""Orders to train that a hostile server sends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedaux.audit.site import HostileServer
from fedaux.config.methods import METHODS
from fedaux.core.arrays import Arrays
from fedaux.core.rng import numpy_stream
from fedaux.messages import TrainOrder
from fedaux.methods.hooks import hooks_of
from fedaux.models import flatten_state


def training_order(server: HostileServer) -> TrainOrder:
    """Return an order to train as much of the network as the site's settings say."""
    size = (server.width + 1) * server.classes
    start = numpy_stream(0, "audit").normal(size=size)
    optimizer = server.config.local_training.optimizer
    order = replace(server.train(start), run="run", optimizer=optimizer)
    if not server.config.head_only:
        order = whole_network(order, server)
    if order.method not in METHODS:
        return order
    return replace(order, broadcast=broadcast_of(order.method, order))


def whole_network(order: TrainOrder, server: HostileServer) -> TrainOrder:
    """Return an order to train the server's network instead of a head on its
    features.
    """
    parameters = flatten_state(server.model)["parameters"]
    return replace(order, weights={"parameters": parameters}, h0="", extractor={})


def by_method(method: str, order: TrainOrder) -> TrainOrder:
    """Return the same order by another method, with what it sends at the start."""
    broadcast = broadcast_of(method, order)
    return replace(order, method=method, method_options="{}", broadcast=broadcast)


def broadcast_of(method: str, order: TrainOrder) -> Arrays:
    """Return what a method sends next to the model at the start."""
    if METHODS[method].analytic:
        return {}
    hooks = hooks_of(method, {})
    zeros = np.zeros(order.weights["parameters"].shape, np.float32)
    return hooks.broadcast(hooks.server_state(zeros))
