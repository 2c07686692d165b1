"""The ClientApp: three message handlers. Private records are read here and nowhere else, and never leave.

What a client may reveal is decided by its own settings, in its node's configuration. An order carries no budget, no
noise and no code. The run configuration is the server's, and decides nothing either. `privacy.disclosure` lists
everything that leaves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedaux.algorithms.client_state import ClientState
from fedaux.algorithms.feature_sums import FeatureSums, Moments
from fedaux.algorithms.hooks import Hooks, hooks_of
from fedaux.algorithms.local_training import Trained, train_local
from fedaux.config.methods import SUMS
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.messages import (
    Hello,
    HelloOrder,
    Order,
    OrderError,
    PrepareOrder,
    Sums,
    SumsOrder,
    TrainOrder,
)
from fedaux.core.rng import derive_seed, seeded_torch, torch_stream
from fedaux.data.federated import class_names
from fedaux.data.records import Records
from fedaux.flower.client_data import account_path, load_features, load_mapped, load_records, load_task
from fedaux.flower.client_task import ClientTask
from fedaux.flower.error_redaction import redact_errors
from fedaux.flower.local_results import LocalResult, ResultStore, training_identity
from fedaux.flower.message_versions import VERSION
from fedaux.flower.node_settings import keeps_results, load_site_config, node_clients
from fedaux.flower.serialization import deserialize, make_reply
from fedaux.flower.teaching import prepare_teaching
from fedaux.models import Prototype, flatten_state, state_sizes
from fedaux.models.inference import fingerprint_arrays
from fedaux.models.optimizer import Optimizer
from fedaux.privacy.account_file import Entry
from fedaux.privacy.accounting import BudgetError, Mechanism, plan_training
from fedaux.privacy.budget import BudgetStore
from fedaux.privacy.dp_sgd import train_private
from fedaux.privacy.module_validation import validate_module
from fedaux.privacy.release import release_mechanism
from fedaux.privacy.units import Units
from fedaux.scoring.registry import stored_release

app = ClientApp()
OpenRows = Callable[[], tuple[Prototype, Records]]  # the ordered model and the rows it is for, loaded once


@app.query("hello")
@redact_errors
def hello(message: Message, context: Context) -> Message:
    """The clients of this node, so that the server finds them by name after any restart."""
    deserialize(HelloOrder, message.content)
    config, clients = load_site_config(context), node_clients(context)
    classes = class_names(config, clients[0])
    return make_reply(message, Hello(json.dumps(clients), json.dumps(list(classes)), VERSION))


@app.query("prepare")
@redact_errors
def prepare(message: Message, context: Context) -> Message:
    """P2, P3: one release, entered in the account before a record is read, and stored before it is sent."""
    order = deserialize(PrepareOrder, message.content)
    config = validate_order(context, order)
    prepare_teaching(order, context, config)
    store = BudgetStore(account_path(context, order), config.privacy)
    release = stored_release(
        order, request_hash(order), store, lambda: (load_records(context, order), load_features(order, context))
    )
    return make_reply(message, release)


@app.query("sums")
@redact_errors
def sums(message: Message, context: Context) -> Message:
    """Sums of features, without noise: only where the client's own settings name a method that sends them."""
    order = deserialize(SumsOrder, message.content)
    config = validate_order(context, order)
    own = config.analytic_head
    if own is None or order.sends not in SUMS or SUMS.index(order.sends) > (SUMS.index(own.sends) if own.sums else -1):
        raise OrderError(
            f"the order asks for unprotected {order.sends} of features; this client's own method and head_init do not"
        )
    features, records = load_mapped(order, context)
    found = FeatureSums.of(Moments.of(features, labelled(records), order.classes, order.sends == "moments"))
    account = BudgetStore(account_path(context, order), config.privacy).account()
    return make_reply(message, Sums(order.client, len(records), account.to_json(), found.to_arrays()))


@app.train()
@redact_errors
def train(message: Message, context: Context) -> Message:
    """T1: E epochs from the server's weights. What the method adds, sends and keeps is computed from models alone.

    The same order gets the same model again: see `local_results`.
    """
    order = deserialize(TrainOrder, message.content)
    task = open_task(order, context)
    rows = cache(lambda: load_task(order, context))
    result = train_with_privacy(task, rows) if task.config.privacy.private_training else train_plainly(task, rows)
    task.results.drop_old()
    return make_reply(message, task.update(result, lambda: rows()[0]))


def open_task(order: TrainOrder, context: Context) -> ClientTask:
    config, folder = validate_order(context, order), account_path(context, order)
    hooks, store = ordered_hooks(order, config), BudgetStore(folder, config.privacy)
    states, results = ClientState(folder, order.client, order.run), ResultStore(folder, order.client)
    return ClientTask(order, context, config, hooks, store, results, states, states.load(order.last_round))


def validate_order(context: Context, order: Order) -> Config:
    """The client's own settings, or an `OrderError` if the order does not respect them."""
    config, spec = load_site_config(context), PrototypeSpec.from_json(order.prototype)
    if order.client not in node_clients(context):
        raise OrderError(f"this client is not {order.client!r}")
    if spec not in config.prototypes:  # it might name code or files, or be larger than this machine
        raise OrderError(
            f"the order is for the network {spec.label!r}; this client's own settings list "
            f"{', '.join(own.label for own in config.prototypes)}"
        )
    if isinstance(order, PrepareOrder) and order.scorer != config.privacy.scorer:
        raise OrderError(f"the order asks for the scorer {order.scorer!r}, this client's settings say otherwise")
    allowed = max(config.federation.max_epochs, config.local.epochs)
    if isinstance(order, TrainOrder) and order.epochs > allowed:
        limit = "its own setting federation.max_epochs says how many"
        raise OrderError(f"the order asks for {order.epochs} epochs in a round, this client allows {allowed}; {limit}")
    declared = len(class_names(config, order.client))
    if order.classes != declared:
        raise OrderError(f"the order is for {order.classes} classes, {declared} are declared to this client")
    return config


def ordered_hooks(order: TrainOrder, config: Config) -> Hooks:
    """The hooks of the order's method. An order never makes a client import code: only its own settings do."""
    own = (config.method, json.dumps(dict(config.method_options)))
    if ":" in order.method and (order.method, order.method_options) != own:
        raise OrderError(f"the order names code, the method {order.method!r}, which this client's own settings do not")
    try:
        return hooks_of(order.method, json.loads(order.method_options))
    except ValueError as error:
        raise OrderError(f"the order asks for a method that is not known here: {error}") from error


def train_plainly(task: ClientTask, rows: OpenRows) -> LocalResult:
    """Without any privacy. The result is stored at a site, where training may take hours, not in a simulation."""
    order, started, keeps = task.order, time.perf_counter(), keeps_results(task.context)
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
    result = LocalResult(flatten_state(model), len(records), trained, time.perf_counter() - started)
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
    order, config = task.order, task.config
    privacy, local = config.privacy, config.local
    if bool(order.h0) != config.head_only or (order.epochs, order.batch_size) != (local.epochs, local.batch_size):
        raise OrderError("the order asks for other training than this client's budget was planned for")
    allowed, optimizer, term = privacy.train_rounds or config.rounds, ordered_optimizer(order), task.term

    @cache
    def units() -> tuple[Units, int]:
        """And their public number."""
        found = Units.of(rows()[1], privacy.unit, privacy.max_records_per_person)
        return found, found.public_size(privacy)

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
        return plan_training(privacy, local, units()[1], allowed - len(trained), parameters, before, previous)

    def make(mechanism: Mechanism) -> bytes:
        (model, records), (members, size) = rows(), units()
        train_private(
            model,
            records,
            members,
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


def request_hash(order: PrepareOrder) -> str:
    """Identifies what was asked for, to the bit: an equal request gets the stored release, any other a new one."""
    return fingerprint_arrays(order.public, facts=[order.prototype, order.scorer, str(order.classes), order.h0])
