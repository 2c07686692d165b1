"""Simulated clients that train heads: those of a round in one batched loop, without messages.

What a client does before and after its training is the code of `client_app`. A client that cannot take part, or whose
work fails, gets its order by message after all: it fails there alone, and for the reason it would have elsewhere.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from fedaux.client.handlers import open_task
from fedaux.client.loading import open_rows
from fedaux.client.site import Site
from fedaux.client.stacked_heads import HeadTask, train_heads
from fedaux.client.stored_results import LocalResult
from fedaux.client.task import ClientTask
from fedaux.client.training import labelled, ordered_optimizer
from fedaux.config.schema import Config
from fedaux.core.messages import Order, Reply, TrainOrder, Update
from fedaux.core.order_fields import check_order
from fedaux.core.rng import torch_stream
from fedaux.flower.federation import GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.flower.node_settings import open_site
from fedaux.models import HeadFeatures, Prototype
from fedaux.models.optimizer import Optimizer
from fedaux.privacy.units import public_size

STACK_BYTES = 2**27  # of features, heads, gradients and moments of the clients that train at once
T = TypeVar("T")


def stacks(config: Config) -> bool:
    """Whether clients train heads, without noise."""
    return config.head_only and not config.privacy.private_training


@dataclass(frozen=True, eq=False)
class StackedClient:
    """A client that is ready to train."""

    task: ClientTask
    model: Prototype
    records: int
    head: HeadTask
    settings: tuple[int, int, Optimizer]  # further arguments of `train_heads`
    seconds: float  # that it took to get ready

    @classmethod
    def open(cls, order: TrainOrder, site: Site) -> StackedClient | None:
        """None where it must train by itself."""
        started = time.perf_counter()
        check_order(order)
        task = open_task(order, site)
        if not order.h0 or not stacks(site.config):
            return None
        model, records = open_rows(order, site)
        head = HeadTask(task.start, labelled(records), torch_stream(order.seed), task.term)
        settings = order.epochs, order.batch_size, ordered_optimizer(order)
        fits = order.weights.keys() == {"parameters"} and head.start.shape == ((model.width + 1) * order.classes,)
        if not fits or not len(head.records):
            return None
        return cls(
            task, model, public_size(records, site.config.privacy), head, settings, time.perf_counter() - started
        )

    @property
    def nbytes(self) -> int:
        """Of its features in one copy, and of its head with gradient and moments."""
        return 4 * (len(self.head.records) * self.model.width + 4 * self.head.start.size)


class StackedFederation(GridFederation):
    """A `GridFederation` over an `InProcessGrid` whose clients train heads. Replies come in the order of the orders."""

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        training = [order for order in orders if isinstance(order, TrainOrder)]
        if len(training) < len(orders):
            yield from super().ask(orders)
            return
        for chunk in self._chunks(training):
            updates = train_clients([client for _, client in chunk if client])
            for order, client in chunk:
                update = attempt(updates[client]) if client else None
                yield from [self._validate(order, update)] if update else super().ask([order])

    def _chunks(self, orders: Sequence[TrainOrder]) -> Iterator[list[tuple[TrainOrder, StackedClient | None]]]:
        """Consecutive orders whose clients fit into `STACK_BYTES` together."""
        chunk, size = list[tuple[TrainOrder, StackedClient | None]](), 0
        for order in orders:
            client = attempt(partial(self._open, order))
            chunk.append((order, client))
            size += client.nbytes if client else 0
            if size >= STACK_BYTES:
                yield chunk
                chunk, size = [], 0
        yield chunk

    def _open(self, order: TrainOrder) -> StackedClient | None:
        return StackedClient.open(order, open_site(cast(InProcessGrid, self.grid).context(self.nodes[order.client])))


def attempt(work: Callable[[], T]) -> T | None:
    """None where it fails: its client will say why, when it is asked by message."""
    try:
        return work()
    except Exception:
        return None


def train_clients(clients: Sequence[StackedClient]) -> dict[StackedClient, Callable[[], Update]]:
    """All of a prototype at once, and what makes an update of each. They share the time by their steps."""
    groups, updates = defaultdict[object, list[StackedClient]](list), dict[StackedClient, Callable[[], Update]]()
    for client in clients:
        groups[client.settings, client.model].append(client)
    for group in groups.values():
        started = time.perf_counter()
        features = cast(HeadFeatures, group[0].model.features).on_processor()
        results = train_heads([client.head for client in group], *group[0].settings, features)
        per_step = (time.perf_counter() - started) / sum(trained.steps for _, trained in results)
        for client, (head, trained) in zip(group, results, strict=True):
            seconds = client.seconds + per_step * trained.steps
            result = LocalResult({"parameters": head}, client.records, trained, seconds)
            updates[client] = partial(client.task.update, result, partial(getattr, client, "model"))
    return updates
