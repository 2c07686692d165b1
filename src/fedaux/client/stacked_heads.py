"""T1 of simulated clients that train linear heads: all heads as one tensor in one loop.

Every head sees the batches that `train_local` would give it, in the same order, and
arrives at the same weights. What a client does before and after its training is the
code of `client.handlers`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaux.client.gate import admit
from fedaux.client.handlers import open_task
from fedaux.client.kept_state import LocalResult, TrainingSummary
from fedaux.client.loading import open_rows
from fedaux.client.site import Site
from fedaux.client.training import ClientTask, labelled, ordered_optimizer
from fedaux.config.schema import Config
from fedaux.core.rng import torch_stream
from fedaux.data.partition import batch_starts, shuffled
from fedaux.data.records import Indices, Records
from fedaux.messages import TrainOrder, Update, check_order
from fedaux.methods.hooks import ModelVector
from fedaux.models import HeadFeatures, Prototype
from fedaux.models.optimizer import Optimizer, StackedDescent, Term
from fedaux.privacy.units import public_size


@dataclass(frozen=True, eq=False)
class HeadTask:
    """A head as flat parameters, weight (C, H) and bias (C,), and the features and
    labels that it trains on.
    """

    start: ModelVector
    records: Records
    generator: torch.Generator
    # of the parameters, added to every gradient: FedProx's, SCAFFOLD's, FedDyn's
    term: Term | None = None


def train_heads(
    tasks: Sequence[HeadTask],
    epochs: int,
    batch_size: int,
    optimizer: Optimizer,
    features: HeadFeatures | None = None,
) -> list[tuple[ModelVector, TrainingSummary]]:
    """(parameters, what `train_local` returns) of each task.

    Heads with more steps come first in the stack, so heads still in training are always
    its first rows. `features` is what the heads make of the features of their tasks,
    all the same. None means nothing.
    """
    # of an epoch
    steps = np.array(
        [len(batch_starts(len(task.records), batch_size)) for task in tasks]
    )
    ranks = np.argsort(-steps, kind="stable")
    ranked = [tasks[rank] for rank in ranks]
    per_epoch = torch.from_numpy(steps[ranks])
    x, y, rows = _pool([task.records for task in ranked])
    index, sizes = _batches(
        rows, [task.generator for task in ranked], epochs, batch_size
    )
    theta = torch.from_numpy(np.stack([task.start for task in ranked]))
    gradient = torch.empty_like(theta)
    losses = torch.zeros(len(tasks)).double()
    descent = StackedDescent(optimizer, theta)
    for step in range(epochs * int(steps.max())):
        active = int((epochs * per_epoch > step).sum())
        size = sizes[:active, step]
        batch = index[:active, step, : int(size.max())]
        inputs = torch.from_numpy(x[batch])
        labels = torch.from_numpy(y[batch])
        if features is not None:
            inputs = features(inputs)
        loss = (
            _cross_entropy(theta[:active], inputs, labels, size, gradient[:active])
            * size
        )
        losses[:active] = torch.where(
            step % per_epoch[:active] == 0, loss, losses[:active] + loss
        )
        for place, task in enumerate(ranked[:active]):
            if task.term is not None:
                gradient[place] += task.term(theta[place])
        descent.step(gradient[:active])
    means = losses / torch.tensor([len(task.records) for task in ranked])
    trained = [
        TrainingSummary(loss, epochs * count)
        for loss, count in zip(means.tolist(), per_epoch.tolist(), strict=True)
    ]
    heads = theta.numpy()
    return [(heads[place], trained[place]) for place in np.argsort(ranks)]


def _pool(
    parts: Sequence[Records],
) -> tuple[NDArray[Any], NDArray[np.int64], list[Indices]]:
    """Return (x, labels, rows of each part), without a copy if the parts are views of
    the same arrays.
    """
    first = parts[0]
    share_arrays = all(
        records.x is first.x and records.y is first.y for records in parts
    )
    if first.y is not None and share_arrays:
        return first.x, first.y, [_rows_of(records) for records in parts]
    ends = np.cumsum([len(records) for records in parts])
    x = np.concatenate([records.gather() for records in parts])
    labels = np.concatenate([records.labels for records in parts])
    return x, labels, np.split(np.arange(ends[-1]), ends[:-1])


def _rows_of(records: Records) -> Indices:
    return np.arange(len(records)) if records.rows is None else records.rows


def _batches(
    rows: Sequence[Indices],
    generators: Sequence[torch.Generator],
    epochs: int,
    batch_size: int,
) -> tuple[Indices, Tensor]:
    """(rows of each head's steps, (k, S, B + 1). Their numbers, (k, S)). Short batches
    are filled up with own rows.
    """
    starts = [batch_starts(len(part), batch_size) for part in rows]
    steps = epochs * max(map(len, starts))
    index = np.zeros((len(rows), steps, batch_size + 1), np.int64)
    sizes = np.zeros((len(rows), steps), np.int64)
    for head, (part, generator) in enumerate(zip(rows, generators, strict=True)):
        index[head] = part[0]
        counts = np.diff([*starts[head], len(part)])
        for epoch in range(epochs):
            here = slice(epoch * len(counts), (epoch + 1) * len(counts))
            order = part[shuffled(len(part), generator)]
            index[head, here, :-1] = np.resize(order, (len(counts), batch_size))
            # of a last batch with one row more
            index[head, here.stop - 1, -1] = order[-1]
            sizes[head, here] = counts
    return index, torch.from_numpy(sizes)


def _cross_entropy(
    theta: Tensor, x: Tensor, y: Tensor, sizes: Tensor, gradient: Tensor
) -> Tensor:
    """The mean loss of each head on the first `sizes` rows of its batch, (k,). Its
    gradient is written to `gradient`.

    theta, gradient: (k, P); x: (k, B, H); y: (k, B). In the order in which
    `F.cross_entropy` and its gradient do it.
    """
    heads, rows, width = x.shape
    classes = theta.shape[1] // (width + 1)
    weight, weight_gradient = (
        flat[:, :-classes].view(heads, classes, width) for flat in (theta, gradient)
    )
    log_p = torch.baddbmm(
        theta[:, None, -classes:], x, weight.transpose(1, 2)
    ).log_softmax(2)
    # in the mean: none for rows that fill
    share = ((torch.arange(rows) < sizes[:, None]) / sizes[:, None])[..., None]
    losses = log_p.gather(2, y[..., None]).neg_().mul_(share)
    error = log_p.exp_().mul_(share).scatter_add_(2, y[..., None], -share)
    torch.bmm(error.transpose(1, 2), x, out=weight_gradient)
    torch.sum(error, 1, out=gradient[:, -classes:])
    return losses.sum((1, 2))


def can_batch_heads(config: Config) -> bool:
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
        """Prepare a client to train its head with others, or None if it must train by
        itself.
        """
        started = time.perf_counter()
        trains_heads = bool(order.h0) and can_batch_heads(site.config)
        if not trains_heads or order.max_grad_norm or order.class_weights:
            return None
        check_order(order)
        admit(order, site)
        task = open_task(order, site)
        model, records = open_rows(order, site)
        head = HeadTask(
            task.start, labelled(records), torch_stream(order.seed), task.term
        )
        settings = order.epochs, order.batch_size, ordered_optimizer(order)
        fits = order.weights.keys() == {"parameters"} and head.start.shape == (
            (model.width + 1) * order.classes,
        )
        if not fits or not len(head.records):
            return None
        return cls(
            task,
            model,
            public_size(records, site.config.privacy),
            head,
            settings,
            time.perf_counter() - started,
        )

    def update(self, result: LocalResult) -> Update:
        return self.task.update(result, lambda: self.model)

    @property
    def nbytes(self) -> int:
        """The bytes of one copy of its features, and of its head with gradient and
        moments.
        """
        return 4 * (
            len(self.head.records) * self.model.width + 4 * self.head.start.size
        )


def train_clients(clients: Sequence[StackedClient]) -> dict[StackedClient, LocalResult]:
    """Train all heads of a prototype at once. The time is divided between them in
    proportion to their steps.
    """
    groups = defaultdict[object, list[StackedClient]](list)
    results_of: dict[StackedClient, LocalResult] = {}
    for client in clients:
        groups[client.settings, client.model].append(client)
    for group in groups.values():
        started = time.perf_counter()
        features = cast(HeadFeatures, group[0].model.features).on_processor()
        results = train_heads(
            [client.head for client in group], *group[0].settings, features
        )
        per_step = (time.perf_counter() - started) / sum(
            trained.steps for _, trained in results
        )
        for client, (head, trained) in zip(group, results, strict=True):
            seconds = client.seconds + per_step * trained.steps
            results_of[client] = LocalResult(
                {"parameters": head}, client.records, trained, seconds
            )
    return results_of
