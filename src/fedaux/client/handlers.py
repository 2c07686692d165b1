"""The client's four handlers of orders. Private records are read here and nowhere else, and never leave.

A client's own settings (`Site`) alone decide what it may reveal. An order carries no budget, no noise and no code, and
the server's run configuration decides nothing either. `privacy.ledger` lists everything that leaves.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedaux.client.approvals import with_approval
from fedaux.client.loading import load_features, load_mapped, load_records, load_task
from fedaux.client.secure_sums import Participation
from fedaux.client.site import Site
from fedaux.client.teaching import prepare_teaching
from fedaux.client.training import ClientTask, labelled, train_in_sum, train_plainly, train_with_privacy
from fedaux.config.methods import allowed_sums
from fedaux.config.schema import Config
from fedaux.core.messages import (
    VERSION,
    Arrays,
    DataOrder,
    Hello,
    HelloOrder,
    Masked,
    OrderError,
    PrepareOrder,
    Release,
    Sums,
    SumsOrder,
    TrainOrder,
    Update,
)
from fedaux.data.federated import class_names
from fedaux.data.records import Records
from fedaux.methods.analytic_heads import analytic_hooks
from fedaux.methods.hooks import Hooks, hooks_of
from fedaux.methods.summed_update import summed_update, to_vector
from fedaux.models.inference import fingerprint_arrays
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.units import public_size
from fedaux.scoring.base import Features
from fedaux.scoring.pooled import shared_noise_scale
from fedaux.scoring.registry import make_scorer, stored_release


def hello(order: HelloOrder, site: Site) -> Hello:
    """Name the clients of this site, so that the server finds them again after any restart."""
    classes = class_names(site.config, site.clients[0])
    return Hello(json.dumps(list(site.clients)), json.dumps(list(classes)), VERSION)


@with_approval
def prepare(order: PrepareOrder, site: Site) -> Release | Masked:
    """Make one release (P2, P3), entered in the account before a record is read, and stored before it is sent."""
    config = validate_order(site, order)
    prepare_teaching(order, site)
    store = BudgetStore(site.account_folder(order.client), config.privacy)

    def own_data() -> tuple[Records, Features]:
        return load_records(site, order), load_features(order, site)

    if not order.sum:
        return stored_release(order, request_hash(order), store, own_data)
    scorer, part = make_scorer(config.privacy, order.classes), Participation.of(order, site)
    scale = shared_noise_scale(scorer, order.public, config.privacy, part.honest)

    def make(request: str) -> NDArray[np.int64]:
        values: NDArray[np.int64] = stored_release(order, request, store, own_data, part.honest).arrays["values"]
        return values

    return part.answer(order, make, scale)


@with_approval
def sums(order: SumsOrder, site: Site) -> Sums | Masked:
    """Sum up features, without noise; only if the client's own settings name a method that sends such sums."""
    config = validate_order(site, order)
    own = config.analytic_head
    if own is None or order.sends not in allowed_sums(own.sends):
        raise OrderError(
            f"the order asks for unprotected {order.sends} of features; this client's own method and head_init do not"
        )

    def found() -> tuple[Arrays, int]:
        features, records = load_mapped(order, site)
        summed = analytic_hooks(config).summarise(features, labelled(records), order.classes, order.sends)
        return summed.to_arrays(), public_size(records, config.privacy)

    if order.sum:
        return Participation.of(order, site).answer(order, lambda request: to_vector(found()[0]))
    account = BudgetStore(site.account_folder(order.client), config.privacy).account()
    arrays, size = found()
    return Sums(order.client, size, account.to_json(), arrays)


@with_approval
def train(order: TrainOrder, site: Site) -> Update | Masked:
    """Train E epochs from the server's weights (T1). A method's own terms and state depend on models alone.

    The same order always gets the same model: see `kept_state`.
    """
    task = open_task(order, site)
    rows = cache(lambda: load_task(order, site))
    if order.sum and site.config.privacy.private_training:
        return train_in_sum(task, rows)

    def update() -> Update:
        private = site.config.privacy.private_training
        result = train_with_privacy(task, rows) if private else train_plainly(task, rows)
        task.results.drop_old()
        return task.update(result, lambda: rows()[0])

    return as_sent(task, update)


def as_sent(task: ClientTask, update: Callable[[], Update]) -> Update | Masked:
    """Return the update, or in a secure sum the client's contribution under masks, computed once."""
    if not task.order.sum:
        return update()
    part = Participation.of(task.order, task.site)
    return part.answer(task.order, lambda request: summed_update(task.order, update(), task.hooks))


def open_task(order: TrainOrder, site: Site) -> ClientTask:
    return ClientTask(order, site, ordered_hooks(order, validate_order(site, order)))


def validate_order(site: Site, order: DataOrder) -> Config:
    """Return the client's own settings, or raise an `OrderError` if the order does not respect them."""
    config = site.config
    if order.client not in site.clients:
        raise OrderError(f"this client is not {order.client!r}")
    if order.prototype not in {own.to_json() for own in config.prototypes}:  # it might name code, or be too large
        raise OrderError(
            f"the order is for the network {order.prototype[:200]}; this client's own settings list "
            f"{', '.join(own.label for own in config.prototypes)}"
        )
    if bool(order.sum) != config.federation.secure:
        raise OrderError(
            "this client takes part in secure sums only (federation.secure), and the order asks for it alone"
            if config.federation.secure
            else "the order is for a secure sum, and federation.secure is false in this client's own settings"
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
    """Return the hooks of the order's method. Only the client's own settings, never an order, make it import code."""
    own = (config.method, json.dumps(dict(config.method_options)))
    if ":" in order.method and (order.method, order.method_options) != own:
        raise OrderError(f"the order names code, the method {order.method!r}, which this client's own settings do not")
    try:
        hooks = hooks_of(order.method, json.loads(order.method_options))
    except (ValueError, TypeError) as error:
        raise OrderError(f"the order asks for a method that is not known here: {error}") from error
    theta = np.zeros(order.weights["parameters"].shape, np.float32) if "parameters" in order.weights else np.zeros(0)
    expected, sent = (array_shapes(arrays) for arrays in (hooks.broadcast(hooks.server_state(theta)), order.broadcast))
    if sent != expected:
        raise OrderError(f"beside the model, {order.method} sends arrays of the shapes {expected}, not {sent}")
    return hooks


def array_shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def request_hash(order: PrepareOrder) -> str:
    """Hash what is asked for, to the bit: an equal request gets the stored release, any other a new one."""
    return fingerprint_arrays(order.public, facts=[order.prototype, order.scorer, str(order.classes), order.h0])
