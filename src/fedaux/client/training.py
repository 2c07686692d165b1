"""T1 at a client: a model trained as the order and the client's own settings say, with privacy or without."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from fedaux.client.local_training import Trained, train_local
from fedaux.client.stored_results import LocalResult, training_identity
from fedaux.client.task import ClientTask
from fedaux.core.messages import OrderError, TrainOrder
from fedaux.core.rng import derive_seed, seeded_torch, torch_stream
from fedaux.data.records import Records
from fedaux.models import Prototype, flatten_state, state_sizes
from fedaux.models.optimizer import Optimizer
from fedaux.privacy.account import Entry
from fedaux.privacy.accounting import BudgetError, Mechanism, plan_training, release_mechanism
from fedaux.privacy.dp_sgd import train_private
from fedaux.privacy.module_validation import validate_module
from fedaux.privacy.units import Units, public_size

OpenRows = Callable[[], tuple[Prototype, Records]]  # the ordered model and the rows it is for, loaded once


def train_plainly(task: ClientTask, rows: OpenRows) -> LocalResult:
    """Without any privacy. The result is stored at a site, where training may take hours, not in a simulation."""
    order, started, keeps = task.order, time.perf_counter(), task.site.keeps_results
    identity = training_identity(order, private=False) if keeps else ""
    if keeps and task.results.path(identity).exists():
        return LocalResult.load(task.results.path(identity))
    model, records = rows()
    with seeded_torch(order.seed):  # for networks that draw at random themselves, as dropout does
        trained = train_local(
            model,
            labelled(records),
            epochs=order.epochs,
            batch_size=order.batch_size,
            optimizer=ordered_optimizer(order),
            generator=torch_stream(order.seed),
            term=task.term,
            freeze_batch_norm=order.freeze_batch_norm,
        )
    result = LocalResult(
        flatten_state(model), public_size(records, task.site.config.privacy), trained, time.perf_counter() - started
    )
    if keeps:
        task.results.keep(identity, result)
    return result


def labelled(records: Records) -> Records:
    """Those that train without privacy: a record whose label was not declared takes no part."""
    return records.take(np.flatnonzero(records.labels >= 0))


def ordered_optimizer(order: TrainOrder) -> Optimizer:
    """The order may choose: an optimiser works on gradients after the noise."""
    try:
        return Optimizer(order.optimizer, order.lr, order.momentum, order.weight_decay)
    except ValueError as error:
        raise OrderError(f"the order asks for an optimiser that is not known here: {error}") from error


def train_with_privacy(task: ClientTask, rows: OpenRows) -> LocalResult:
    """As much noise as the client's own settings ask for, for as many rounds as they foresee, and no more of them.

    What is left of the total after everything spent, and after the scores even if they are still to come, is spread
    over the rounds that remain. An order that was answered before is answered from the disk, and costs nothing.
    """
    order, config = task.order, task.site.config
    privacy, local = config.privacy, config.local
    if bool(order.h0) != config.head_only or (order.epochs, order.batch_size) != (local.epochs, local.batch_size):
        raise OrderError("the order asks for other training than this client's budget was planned for")
    allowed, optimizer, term = privacy.train_rounds or config.rounds, ordered_optimizer(order), task.term

    def plan(entries: Sequence[Entry]) -> Mechanism:
        trained = [entry for entry in entries if entry.trains]
        if len(trained) >= allowed:
            raise BudgetError(
                f"training is refused: this client's budget was planned for {allowed} rounds, and they are used up. "
                "Its own setting privacy.train_rounds says how many there may be; more of them need more noise."
            )
        before = [entry.mechanism for entry in entries]
        if config.releases and len(trained) == len(entries):
            before.append(release_mechanism(order.classes * (privacy.embedding_dim + 1), privacy))
        previous, model = trained[-1].noise if trained else 0.0, rows()[0]
        validate_module(model, training=True)
        parameters = state_sizes(model)["parameters"]
        return plan_training(
            privacy, local, public_size(rows()[1], privacy), allowed - len(trained), parameters, before, previous
        )

    def make(mechanism: Mechanism) -> bytes:
        model, records = rows()
        units = Units.of(records, privacy.unit, privacy.max_records_per_person)
        size = public_size(records, privacy)
        train_private(
            model,
            records,
            units,
            mechanism,
            size=size,
            clip=privacy.max_grad_norm,
            optimizer=optimizer,
            term=term,
            unsafe_seed=derive_seed(privacy.unsafe_seed, order.client, order.round) if privacy.unsafe_seed >= 0 else -1,
        )
        return LocalResult(flatten_state(model), size, Trained(0.0, mechanism.steps), 0.0, mechanism).to_bytes()

    identity = training_identity(order, private=True)
    path = task.results.path(identity)
    task.store.train(identity, path, plan, make, order.heard, order.heard_signature)
    return LocalResult.load(path)
