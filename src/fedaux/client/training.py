"""T1 at a client: train a model as the order and the client's own settings say, and
make the update to send.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedaux.client.answers import AnswerStore
from fedaux.client.kept_state import ClientState, LocalResult, TrainingSummary
from fedaux.client.site import Site
from fedaux.client.teaching import teach
from fedaux.core.arrays import Arrays, fingerprint_arrays
from fedaux.core.errors import SettingsError
from fedaux.core.failures import OrderError
from fedaux.core.io import delete_all_but_newest, hashed_name
from fedaux.core.rng import derive_seed, seeded_torch, torch_stream
from fedaux.data.partition import batches
from fedaux.data.records import Records
from fedaux.messages import TrainOrder, Update, question
from fedaux.methods.hooks import Hooks, LocalWork, ModelVector
from fedaux.models import Prototype, flatten_state, state_sizes, to_half
from fedaux.models.compute import compute_of, forward
from fedaux.models.optimizer import (
    Losses,
    Optimizer,
    Term,
    add_to_gradients,
    flat,
    mean_loss,
)
from fedaux.privacy.account_file import TRAINING, Entry
from fedaux.privacy.accounting import (
    BudgetError,
    Mechanism,
    plan_training,
    release_mechanism,
)
from fedaux.privacy.dp_sgd import train_private
from fedaux.privacy.module_validation import validate_module
from fedaux.privacy.units import Units, public_size


def train_local(
    model: nn.Module,
    records: Records,
    *,
    epochs: int,
    batch_size: int,
    optimizer: Optimizer,
    generator: torch.Generator,
    term: Term | None = None,
    freeze_batch_norm: bool = False,
    max_grad_norm: float = 0.0,
    class_weights: NDArray[np.float32] | None = None,
) -> TrainingSummary:
    """Train for E epochs on cross-entropy, in whose mean a record counts as much as
    `class_weights` says of its class. `term`, a function of the parameters, is added to
    every gradient. The sum is then scaled down to `max_grad_norm`, unless that is 0.

    A frozen BatchNorm normalises by the statistics that came with the model and keeps
    them. Its weights are trained.
    """
    model.train()
    if freeze_batch_norm:
        for module in model.modules():
            if isinstance(module, _BatchNorm):
                module.eval()
    labels = compute_of(model).put(
        torch.from_numpy(np.ascontiguousarray(records.labels))
    )
    weights = None
    if class_weights is not None:
        weights = compute_of(model).put(torch.tensor(class_weights))
    parameters = list(model.parameters())
    descent = optimizer.make(parameters)
    steps = 0
    losses = Losses()
    for _ in range(epochs):
        losses.clear()
        for rows in batches(len(records), batch_size, generator):
            logits = forward(model, records.batch(rows))
            loss = weighted_loss(logits, labels[rows], weights)
            losses.append((loss.detach(), len(rows)))
            descent.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if term is not None:
                add_to_gradients(parameters, term(flat(parameters)))
            if max_grad_norm:
                nn.utils.clip_grad_norm_(parameters, max_grad_norm)
            descent.step()
            steps += 1
    # the resident model must not keep a second model's worth of gradients
    descent.zero_grad()
    return TrainingSummary(mean_loss(losses), steps)


def weighted_loss(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over records of weight·cross-entropy. PyTorch's mean by weights would
    undo them at a client of one class.
    """
    if weights is None:
        return F.cross_entropy(logits, labels)
    return (F.cross_entropy(logits, labels, reduction="none") * weights[labels]).mean()


def gradient_term(
    hooks: Hooks, mu: float, start: ModelVector, received: Arrays, state: Arrays
) -> Term | None:
    """Return FedProx's μ (θ − θ_t) plus the method's own term as one function of θ, or
    None if there is neither.
    """
    has_term = type(hooks).gradient_term is not Hooks.gradient_term
    if mu == 0 and not has_term:
        return None

    @cache
    def on(device: torch.device) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        return (
            torch.tensor(start, device=device),
            _tensors(received, device),
            _tensors(state, device),
        )

    def term(theta: Tensor) -> Tensor:
        anchor, sent, kept = on(theta.device)
        pull = mu * (theta - anchor)
        if not has_term:
            return pull
        more = hooks.gradient_term(theta, anchor, sent, kept)
        return pull if more is None else pull + more

    return term


def _tensors(arrays: Arrays, device: torch.device) -> dict[str, Tensor]:
    """Copy arrays to tensors, since a message's arrays are read-only."""
    return {name: torch.tensor(array, device=device) for name, array in arrays.items()}


@dataclass(frozen=True, eq=False)
class ClientTask:
    """An order to train that the client's own settings allow, with the state that the
    client keeps for it.
    """

    order: TrainOrder
    site: Site
    hooks: Hooks

    @cached_property
    def store(self) -> AnswerStore:
        return AnswerStore.of(self.site, self.order.client)

    @property
    def path(self) -> Path:
        """Where the trained model is stored: by colour and client, under the hash of
        the question.
        """
        return self._folder / f"{self._stem}-{question(self.order)}.safetensors"

    def drop_old(self) -> None:
        """Delete all stored models but the newest: those of the current run, and of
        another.
        """
        delete_all_but_newest(self._folder, f"{self._stem}-*.safetensors", KEPT_MODELS)

    @property
    def _stem(self) -> str:
        colour = self.site.config.privacy.colour
        return f"trained-{colour}-{hashed_name(self.order.client)}"

    @cached_property
    def state(self) -> Arrays:
        """The method's state from earlier rounds."""
        if not self.hooks.keeps_state:
            return {}
        return self._states.load(self.order.last_round)

    @cached_property
    def start_hash(self) -> str:
        """A hash of the state that training starts from, or "" for methods that keep
        none.
        """
        return fingerprint_arrays(self.state) if self.hooks.keeps_state else ""

    @property
    def _states(self) -> ClientState:
        return ClientState(
            self._folder,
            self.order.client,
            self.order.run,
            self.site.config.privacy.colour,
        )

    @property
    def _folder(self) -> Path:
        return self.site.account_folder(self.order.client)

    @property
    def start(self) -> ModelVector:
        """A copy of the ordered parameters."""
        return self.order.weights["parameters"].astype(np.float32)

    @property
    def term(self) -> Term | None:
        """What the method adds to every gradient, a function of the parameters."""
        return gradient_term(
            self.hooks, self.order.mu, self.start, self.order.broadcast, self.state
        )

    def update(self, result: LocalResult, model: Callable[[], Prototype]) -> Update:
        """Make the update to send from the trained weights, as the method does, and
        keep the method's new state.

        `model` is called only if the client runs its model on public data.
        """
        order = self.order
        trained = result.trained
        mechanism = result.mechanism
        work = LocalWork(
            trained.steps, order.lr, order.optimizer, order.momentum, order.mu
        )
        sent = self.hooks.client_update(
            self.start, result.weights["parameters"], work, order.broadcast, self.state
        )
        if sent.state and not self.hooks.keeps_state:
            raise SettingsError(
                f"Cannot keep the state of {order.method}: its hooks do not declare "
                "that they keep any. Set keeps_state = True in their class."
            )
        if sent.state:
            self._states.save(order.last_round, order.round, sent.state)
        weights = {**result.weights, "parameters": sent.parameters}
        if order.weights["parameters"].dtype == "float16":
            weights = to_half(weights)
        ensemble: Arrays = {}
        if order.teaching:
            ensemble = teach(order, self.site, model(), weights)
        return Update(
            client=order.client,
            round=order.round,
            records=result.records,
            loss=trained.loss,
            seconds=result.seconds,
            noise=mechanism.noise_multiplier,
            rate=mechanism.sample_rate,
            steps=mechanism.steps,
            account=self.store.account().to_json(),
            weights=weights,
            extra=sent.extra,
            ensemble=ensemble,
        )


KEPT_MODELS = (
    2  # trained models that a client keeps: of the current run, and of another
)
# the ordered model and the rows it is for, loaded once
OpenRows = Callable[[], tuple[Prototype, Records]]


def train_plainly(task: ClientTask, rows: OpenRows) -> LocalResult:
    """Train without any privacy. A site, where training may take hours, stores the
    result. A simulation does not.
    """
    if not task.site.keeps_results:
        return _train_plainly(task, rows)
    content = task.store.without_noise(
        task.path, lambda: _train_plainly(task, rows).to_bytes()
    )
    return LocalResult.from_bytes(content)


def _train_plainly(task: ClientTask, rows: OpenRows) -> LocalResult:
    order = task.order
    started = time.perf_counter()
    model, records = rows()
    # for networks that draw random numbers, as dropout does
    with seeded_torch(order.seed):
        trained = train_local(
            model,
            labelled(records),
            epochs=order.epochs,
            batch_size=order.batch_size,
            optimizer=ordered_optimizer(order),
            generator=torch_stream(order.seed),
            term=task.term,
            freeze_batch_norm=order.freeze_batch_norm,
            max_grad_norm=order.max_grad_norm,
            class_weights=ordered_class_weights(order),
        )
    seconds = time.perf_counter() - started
    return LocalResult(
        flatten_state(model),
        public_size(records, task.site.config.privacy),
        trained,
        seconds,
    )


def labelled(records: Records) -> Records:
    """Return the records to train on without privacy: those with a declared label."""
    return records.take(np.flatnonzero(records.labels >= 0))


def ordered_class_weights(order: TrainOrder) -> NDArray[np.float32] | None:
    """Return the weight of each class, or None if all records count alike."""
    weights = order.class_weights.get("weights")
    if weights is not None and len(weights) != order.classes:
        raise OrderError(
            f"Cannot train: the order has {len(weights)} class weights for "
            f"{order.classes} classes. Install the same version of fedaux at the "
            "server and the sites."
        )
    return weights


def ordered_optimizer(order: TrainOrder) -> Optimizer:
    """Return the optimiser that the order names. It may choose, since an optimiser sees
    only noisy gradients.
    """
    try:
        return Optimizer(order.optimizer, order.lr, order.momentum, order.weight_decay)
    except ValueError as error:
        raise OrderError(
            "Cannot train: the order asks for an optimiser that is not known here "
            f"({error}). Install the same version of fedaux at the server and the "
            "sites."
        ) from error


def train_with_privacy(task: ClientTask, rows: OpenRows) -> LocalResult:
    """Train with the noise that the client's own settings demand, for at most the
    rounds that they plan for.

    The budget left after everything spent, and after the scores even if they are still
    to come, is spread over the remaining rounds. An order that was answered before is
    answered from disk, and costs nothing.
    """
    order = task.order
    config = task.site.config
    privacy = config.privacy
    local = config.local
    same_part = bool(order.h0) == config.head_only
    same_epochs = order.epochs == local.epochs
    same_batches = order.batch_size == local.batch_size
    if not (same_part and same_epochs and same_batches):
        raise OrderError(
            "Cannot train: the order asks for other training than this client's budget "
            "was planned for. Set head_only, local.epochs and local.batch_size to the "
            "server's values."
        )
    allowed = privacy.train_rounds or config.rounds
    optimizer = ordered_optimizer(order)
    term = task.term

    def plan(entries: Sequence[Entry]) -> Mechanism:
        trained = [entry for entry in entries if entry.trains]
        if len(trained) >= allowed:
            raise BudgetError(
                "Cannot train: training is refused, because this client's budget was "
                f"planned for {allowed} rounds, and they are used up. Set "
                "privacy.train_rounds for the number of rounds before the first one. "
                "More of them need more noise."
            )
        before = [entry.mechanism for entry in entries]
        if config.releases and len(trained) == len(entries):
            # the scores are still to come
            scores = order.classes * (privacy.dimension + 1)
            before.append(release_mechanism(scores, privacy))
        previous = trained[-1].mechanism.noise_multiplier if trained else 0.0
        model, records = rows()
        validate_module(model, training=True)
        parameters = state_sizes(model)["parameters"]
        size = public_size(records, privacy)
        return plan_training(
            privacy, local, size, allowed - len(trained), parameters, before, previous
        )

    def make(mechanism: Mechanism, data: tuple[Prototype, Records]) -> bytes:
        model, records = data
        size = public_size(records, privacy)
        unsafe_seed = -1
        if privacy.unsafe_seed >= 0:
            unsafe_seed = derive_seed(privacy.unsafe_seed, order.client, order.round)
        train_private(
            model,
            records,
            Units.of(records, privacy.unit, privacy.max_records_per_person),
            mechanism,
            size=size,
            clip=privacy.max_grad_norm,
            optimizer=optimizer,
            term=term,
            unsafe_seed=unsafe_seed,
        )
        trained = TrainingSummary(0.0, mechanism.steps)
        result = LocalResult(flatten_state(model), size, trained, 0.0, mechanism)
        return result.to_bytes()

    content = task.store.with_noise(
        order, TRAINING + question(order), task.path, plan, rows, make
    )
    return LocalResult.from_bytes(content)
