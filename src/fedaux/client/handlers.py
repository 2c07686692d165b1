"""The one way into a site: an order passes the gate, and then its handler. Private
records never leave.

A client's own settings (`Site`) alone decide what it may reveal. An order carries no
budget, no noise and no code, and the server's run configuration decides nothing either.
What each reply tells is declared in `messages.replies`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.client.answers import AnswerStore
from fedaux.client.approvals import ApprovalLog, keep_plan, under_approval
from fedaux.client.gate import admit, own_hooks, word_of
from fedaux.client.loading import load_features, load_mapped, load_records, load_task
from fedaux.client.looks import Looks
from fedaux.client.proposals import Proposal
from fedaux.client.releases import Releases
from fedaux.client.secure_sums import Participation
from fedaux.client.site import Site
from fedaux.client.sums import sum_features
from fedaux.client.teaching import prepare_teaching
from fedaux.client.training import (
    ClientTask,
    labelled,
    train_plainly,
    train_with_privacy,
)
from fedaux.core.arrays import Arrays
from fedaux.core.failures import OrderError
from fedaux.core.versions import versions_text
from fedaux.data.federated import class_names
from fedaux.data.records import Records
from fedaux.data.tables import is_drawn
from fedaux.messages import (
    MESSAGE_VERSION,
    Answer,
    Consent,
    Counts,
    DataOrder,
    EveryOrder,
    Hello,
    HelloOrder,
    LookOrder,
    Masked,
    PlanOrder,
    PrepareOrder,
    Release,
    RunPlan,
    SumOrder,
    SumReply,
    Sums,
    SumsOrder,
    TrainOrder,
    Update,
)
from fedaux.methods.analytic_heads import FeatureSums
from fedaux.methods.summed_update import summed_update, to_vector
from fedaux.privacy.secure_sum import SumSettings
from fedaux.privacy.units import public_size
from fedaux.scoring.base import Features

log = logging.getLogger(__name__)

VectorOf = Callable[[SumsOrder | TrainOrder, Site], NDArray[np.int64]]


def answer(order: EveryOrder, site: Site) -> Hello | Answer:
    """Answer an order that the owner's settings allow, or raise an error."""
    admit(order, site)
    return _HANDLERS[type(order)](order, site)


def hello(order: HelloOrder, site: Site) -> Hello:
    """Name the clients of this site, so that the server finds them again after any
    restart.
    """
    classes = class_names(site.config, site.clients[0])
    return Hello(
        json.dumps(list(site.clients)),
        json.dumps(list(classes)),
        MESSAGE_VERSION,
        versions_text(),
    )


def plan(order: PlanOrder, site: Site) -> Consent:
    """Say whether the owner has approved the plan of a run. A new plan is shown to the
    owner.
    """
    proposed = RunPlan.from_json(order.plan)
    settings = site.config.federation
    if settings.approval != "ask":
        return Consent(order.client, proposed.hash, "approved")
    words = sorted({word_of(ask.kind, ask.facts, site) for ask in proposed.asks})
    proposal = Proposal.of(proposed, words, site)
    decision = ApprovalLog(site.vault).propose(proposal, settings.standing)
    keep_plan(proposed, site)
    return Consent(order.client, proposed.hash, decision)


def prepare(order: PrepareOrder, site: Site) -> Release | SumReply:
    """Make one release (P2, P3), or begin a secure sum of releases."""
    if order.sum:
        return Participation.of(order, site).begin(order)
    with under_approval(order, site):
        release = releases_of(order, site).release(order)
        prepare_teaching(order, site)
    return release


def sums(order: SumsOrder, site: Site) -> Sums | SumReply:
    """Sum up features, without noise, or begin a secure sum of them."""
    if order.sum:
        return Participation.of(order, site).begin(order)
    account = AnswerStore.of(site, order.client).account()
    with under_approval(order, site):
        arrays, size = summed_features(order, site)
    return Sums(order.client, size, account.to_json(), arrays)


def train(order: TrainOrder, site: Site) -> Update | SumReply:
    """Train E epochs from the server's weights (T1), or begin a secure sum of trained
    models.

    A method's own terms and state depend on models alone. The same order always gets
    the same model.
    """
    if order.sum:
        return Participation.of(order, site).begin(order)
    task = open_task(order, site)
    with under_approval(order, site, lambda: task.start_hash):
        return trained_update(task)


def look(order: LookOrder, site: Site) -> Counts | SumReply:
    """Count held-out records under noise, or begin a secure sum of such counts."""
    if order.sum:
        return Participation.of(order, site).begin(order)
    with under_approval(order, site):
        return looks_of(order, site).counts(order)


def secure_sum(order: SumOrder, site: Site) -> SumReply | Masked:
    """Answer one of the later messages of a secure sum."""
    if order.step != "masked":
        return Participation.of(order, site).take_part(order)
    return masked(order, site, vector_of)


def masked(order: SumOrder, site: Site, vector_of: VectorOf) -> Masked:
    """Compute what the order that began a secure sum asks for, and answer with it under
    masks.

    The owner's settings and approvals count now, whatever they were when the sum began.
    In the owner's log an answer goes by the keys of this sum too: were the sum
    forgotten and begun again, its vector would be another answer. `vector_of` computes
    what leaves without noise.
    """
    part = Participation.of(order, site)
    asked = part.kept_order()
    admit(asked, site)
    part.check_order(asked)
    store = AnswerStore.of(site, order.client)
    with (
        part.masking(order) as state,
        under_approval(asked, site, lambda: part.own_hash(state)),
    ):

        def mask(vector: NDArray[np.int64]) -> bytes:
            return state.mask(vector).tobytes()

        if isinstance(asked, PrepareOrder):
            releases_of(asked, site).masked(asked, part.masked_path, part.honest, mask)
            prepare_teaching(asked, site)
        elif isinstance(asked, LookOrder):
            looks_of(asked, site).masked(asked, part.masked_path, part.honest, mask)
        else:
            store.only_once(
                f"{part.terms.run}|{statistic(asked)}", part.own_hash(state)
            )

            def mask_own() -> bytes:
                return mask(
                    vector_or_zeros(lambda: vector_of(asked, site), part.settings)
                )

            store.without_noise(part.masked_path, mask_own, must_store=True)
    return part.masked(store)


_HANDLERS: dict[type, Callable[[Any, Site], Hello | Answer]] = {
    HelloOrder: hello,
    PlanOrder: plan,
    PrepareOrder: prepare,
    SumsOrder: sums,
    TrainOrder: train,
    LookOrder: look,
    SumOrder: secure_sum,
}


def releases_of(order: PrepareOrder, site: Site) -> Releases:
    @cache
    def own_data() -> tuple[Records, Features]:
        return load_records(site, order), load_features(order, site)

    once_in = site.vault if site.is_simulated else None
    drawn = is_drawn(site.config.aux)
    return Releases(AnswerStore.of(site, order.client), own_data, once_in, drawn)


def looks_of(order: LookOrder, site: Site) -> Looks:
    return Looks(AnswerStore.of(site, order.client), site)


def summed_features(order: SumsOrder, site: Site) -> tuple[Arrays, int]:
    """Return the sums of a client's features, and the number of records that it
    states.
    """
    features, records = load_mapped(order, site)
    moments = sum_features(features, labelled(records), order.classes, order.sends)
    return FeatureSums.of(moments).to_arrays(), public_size(
        records, site.config.privacy
    )


def vector_or_zeros(
    compute: Callable[[], NDArray[np.int64]], settings: SumSettings
) -> NDArray[np.int64]:
    """Return what a site adds to a sum; zeros, which add no record, if that cannot be
    computed from its records.

    The site that alone fails would tell the server something of its records alone: that
    a number is out of range, for example, as often as the server asks. An `OrderError`
    depends on the order, so all sites raise it.
    """
    try:
        vector = compute()
    except OrderError:
        raise
    except Exception:
        log.exception(
            "Cannot compute this site's part of a secure sum. It adds nothing, and the "
            "server is not told."
        )
        return np.zeros(settings.length, np.int64)
    if vector.shape != (settings.length,) or not settings.has_room_for(vector):
        log.error(
            "This site's part of a secure sum has %d numbers up to %.3g, which cannot "
            "be summed. It adds nothing, and the server is not told.",
            vector.size,
            np.abs(vector.astype(np.float64)).max(initial=0.0),
        )
        return np.zeros(settings.length, np.int64)
    return vector


def vector_of(order: SumsOrder | TrainOrder, site: Site) -> NDArray[np.int64]:
    """Return what a client adds to a secure sum, without noise."""
    if isinstance(order, SumsOrder):
        return to_vector(summed_features(order, site)[0])
    task = open_task(order, site)
    return summed_update(order, trained_update(task), task.hooks)


def trained_update(task: ClientTask) -> Update:
    rows = cache(lambda: load_task(task.order, task.site))
    private = task.site.config.privacy.private_training
    result = train_with_privacy(task, rows) if private else train_plainly(task, rows)
    task.drop_old()
    return task.update(result, lambda: rows()[0])


def open_task(order: TrainOrder, site: Site) -> ClientTask:
    return ClientTask(order, site, own_hooks(order, site.config))


def statistic(order: DataOrder) -> str:
    """Name what a sum without noise is of: there is one such sum in a run."""
    what = (
        f"models of round {order.round}"
        if isinstance(order, TrainOrder)
        else "features"
    )
    return f"{what} of {order.prototype}"
