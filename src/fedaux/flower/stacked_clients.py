"""Simulated clients that train heads: those of a round in one batched loop, without messages.

What a client does before and after its training is the code of `client_app`. A client that cannot take part, or whose
work fails, gets its order by message after all: it fails there alone, and for the reason it would have elsewhere.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from flwr.app import Context

from fedaux.algorithms.hooks import Hooks, Vector, hooks_of
from fedaux.algorithms.local_training import Trained
from fedaux.algorithms.stacked_heads import HeadTask, train_heads
from fedaux.config.schema import Config
from fedaux.core.messages import Order, Reply, TrainOrder, Update
from fedaux.core.rng import torch_stream
from fedaux.flower.client_app import labelled, open_task, ordered_optimizer
from fedaux.flower.client_data import open_rows
from fedaux.flower.client_task import ClientTask
from fedaux.flower.federation import GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.models import Prototype
from fedaux.models.optimizer import Optimizer

STACK_BYTES = 2**27  # of features, heads, gradients and moments of the clients that train at once


def stacks(config: Config) -> bool:
    """Whether its clients train plain heads: without noise, and without a term of the method's own."""
    private = config.privacy.private_training
    return config.head_only and not private and _plain(hooks_of(config.method, dict(config.method_options)))


def _plain(hooks: Hooks) -> bool:
    return type(hooks).gradient_term is Hooks.gradient_term


@dataclass(frozen=True, eq=False)
class StackedClient:
    """A client that is ready to train."""

    task: ClientTask
    model: Prototype
    records: int
    head: HeadTask
    settings: tuple[int, int, Optimizer, float]  # further arguments of `train_heads`
    seconds: float  # that it took to get ready

    @classmethod
    def open(cls, order: TrainOrder, context: Context) -> StackedClient | None:
        """None where it must train by itself."""
        started, task = time.perf_counter(), open_task(order, context)
        if not order.h0 or task.config.privacy.private_training or not _plain(task.hooks):
            return None
        model, records = open_rows(order, context)
        head = HeadTask(task.start, labelled(records), torch_stream(order.seed))
        settings = order.epochs, order.batch_size, ordered_optimizer(order), order.mu
        seconds = time.perf_counter() - started
        fits = head.start.shape == ((model.width + 1) * order.classes,) and order.weights.keys() == {"parameters"}
        return cls(task, model, len(records), head, settings, seconds) if fits and len(head.records) else None

    @property
    def nbytes(self) -> int:
        """Of its features in one copy, and of its head with gradient and moments."""
        return 4 * (len(self.head.records) * self.model.width + 4 * self.head.start.size)

    def update(self, parameters: Vector, trained: Trained, seconds: float) -> Update:
        return self.task.update(self.model, {"parameters": parameters}, self.records, trained, self.seconds + seconds)


class StackedFederation(GridFederation):
    """A `GridFederation` over an `InProcessGrid` whose clients train heads. Replies come in the order of the orders."""

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        if not all(isinstance(order, TrainOrder) for order in orders):
            yield from super().ask(orders)
            return
        for chunk in self._chunks(cast(Sequence[TrainOrder], orders)):
            trained = train_clients(client for _, client in chunk if client is not None)
            for order, client in chunk:
                try:
                    update = None if client is None else client.update(*trained.pop(client))
                except Exception:  # a full disk, for example
                    update = None
                if update is None:
                    yield from super().ask([order])
                else:
                    yield self._validate(order, update)

    def _chunks(self, orders: Sequence[TrainOrder]) -> Iterator[list[tuple[TrainOrder, StackedClient | None]]]:
        """Consecutive orders whose clients fit into `STACK_BYTES` together."""
        chunk, size = list[tuple[TrainOrder, StackedClient | None]](), 0
        for order in orders:
            chunk.append((order, self._open(order)))
            size += 0 if chunk[-1][1] is None else chunk[-1][1].nbytes
            if size >= STACK_BYTES:
                yield chunk
                chunk, size = [], 0
        yield chunk

    def _open(self, order: TrainOrder) -> StackedClient | None:
        grid = cast(InProcessGrid, self.grid)
        try:
            return StackedClient.open(order, grid.context(self.nodes[order.client]))
        except Exception:  # an order that is refused, for example
            return None


def train_clients(clients: Iterable[StackedClient]) -> dict[StackedClient, tuple[Vector, Trained, float]]:
    """(parameters, loss and steps, seconds) of each: all of a prototype train at once, and share the time by steps."""
    groups, results = defaultdict[object, list[StackedClient]](list), {}
    for client in clients:
        groups[client.settings, client.head.start.size].append(client)
    for group in groups.values():
        started = time.perf_counter()
        trained = train_heads([client.head for client in group], *group[0].settings)
        per_step = (time.perf_counter() - started) / sum(result.steps for _, result in trained)
        for client, (parameters, result) in zip(group, trained, strict=True):
            results[client] = parameters, result, result.steps * per_step
    return results
