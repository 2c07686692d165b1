"""Before a round: pre-trained extractors and what scorers publish (P1), releases and
sums of new clients (P2, P3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.arrays import Arrays
from fedaux.core.failures import Failure
from fedaux.core.io import cache_folder
from fedaux.core.progress import Notice, WorkProgress, report
from fedaux.core.timing import Costs
from fedaux.data.records import Records, is_table
from fedaux.messages import (
    Federation,
    PrepareOrder,
    Release,
    SecureTotal,
    Sums,
    SumsOrder,
)
from fedaux.messages.replies import sums_shapes
from fedaux.methods.analytic_heads import SUM_BITS, FeatureSums
from fedaux.methods.summed_update import from_vector
from fedaux.models import flatten_state, published_weights
from fedaux.models.networks import Columns, CosineMap, TableMap
from fedaux.models.pretraining.store import load_or_pretrain
from fedaux.models.pretraining.trainer import EpochMetrics
from fedaux.models.registry import carried_weights
from fedaux.privacy.module_validation import validate_module
from fedaux.scoring.pooled import pooled_release
from fedaux.scoring.teacher_weights import PublicEmbedding
from fedaux.server.analytic_round import compute_heads
from fedaux.server.networks import Networks
from fedaux.server.run_state import POOLED, RunState
from fedaux.server.server import Server


def initial_state(server: Server) -> RunState:
    """Return the first state: random or pre-trained weights, and what the method's
    scorer publishes, if it has one.
    """
    config = server.config
    check_start(server)
    if server.method.pretrained:
        pretrain_extractors(server)
    else:
        for extractor in server.networks.extractors.values():
            scale_columns(extractor, server.public.aux)
    weights = server.networks.weights()
    method_state = {
        label: server.hooks.server_state(arrays["parameters"])
        for label, arrays in weights.items()
    }
    state = RunState(
        config, 0, weights, method_state=method_state, assignment=server.site_labels
    )
    on_features = takes_features(config)
    if not config.releases and not on_features:
        return state
    extractors = {
        label: flatten_state(extractor)
        for label, extractor in server.networks.extractors.items()
    }
    state = replace(state, extractors=extractors)
    server.restore(state)
    if on_features and config.head_features == "standardised":
        state = replace(state, standardisation=server.public.standardisation())
    if config.releases:
        state = replace(state, public=server.public.publish(server.scorer))
    return state


def takes_features(config: Config) -> bool:
    """Whether heads are trained or computed on features of h0."""
    return config.head_only or config.analytic_head is not None


def check_start(server: Server) -> None:
    """Raise an error if a run would refuse its networks. It takes no data, so it comes
    before hours of pre-training.
    """
    check_networks(server.config, server.networks)
    if not server.method.pretrained:
        refuse_carried_weights(server)


def check_networks(config: Config, networks: Networks) -> None:
    """Raise an error if a client would refuse a network, because a record's output
    depends on others. Clients keep the reason to themselves.
    """
    if config.privacy.private_training:
        for learner in networks.trained.values():
            validate_module(learner, training=True)
    if config.releases or takes_features(config):
        for extractor in networks.extractors.values():
            validate_module(extractor)


def refuse_carried_weights(server: Server) -> None:
    """Refuse networks with weights of their own in a method from random weights: it
    would be another method.
    """
    for spec in server.config.prototypes:
        carried = carried_weights(
            spec, server.public.aux.shape, server.networks.extractors[spec.label]
        )
        if not carried:
            continue
        method = server.config.method
        raise ConfigError(
            f"Cannot start prototype {spec.name!r} at random: it brings weights of its "
            f"own, {carried[0]} for one, whatever the seed is, and "
            f"{server.method.label} starts from random ones. Set method = '{method}+p' "
            "to start from yours, or load them in a method `restore()` of the "
            f"extractor, with their folder as `published_weights`: then {method} "
            f"starts at random and {method}+p from them."
        )


def scale_columns(extractor: nn.Module, public: Records) -> None:
    """Let a network for rows of numbers centre and scale them as public ones are, with
    any method: it trains no weight. Columns may be of scales far from one another.
    """
    scaled = extractor.columns if isinstance(extractor, TableMap) else extractor
    if isinstance(scaled, Columns | CosineMap) and is_table(public.x):
        scaled.fit(public.gather())


def pretrain_extractors(server: Server) -> None:
    """Pre-train the extractor of every prototype, or load what was published (P1). One
    that is not trained only scales columns.
    """
    trains = server.config.pretrain.trains
    for spec in server.config.prototypes:
        extractor = server.networks.extractors[spec.label]
        if trains or published_weights(extractor):
            pretrain_extractor(server, spec)
        else:
            scale_columns(extractor, server.public.aux)


def pretrain_extractor(server: Server, spec: PrototypeSpec) -> Path | None:
    """Load a prototype's pre-trained extractor, training it if necessary (P1), and
    return its file, or None if there is nothing to pre-train.
    """
    settings = server.config.pretrain.for_records(len(server.public.aux))
    extractor = server.networks.extractors[spec.label]

    def report_epoch(epoch: int, epochs: int, note: str) -> None:
        task = f"pre-training {spec.label}"
        report(WorkProgress(task, epoch, epochs, note, "pretrain"))

    def watch(epoch: EpochMetrics) -> None:
        figures = (
            f"loss {epoch.loss:.3f}, rank {epoch.quality.rank:.1f}, "
            f"{epoch.views_per_second:,.0f} views/s"
        )
        report_epoch(epoch.epoch, settings.epochs, figures)

    if published_weights(extractor):
        extractor.restore()  # type: ignore[operator]
        report_epoch(1, 1, "published weights")
        return Path(published_weights(extractor))
    if not flatten_state(extractor):
        return None
    public = server.public.aux
    if isinstance(extractor, Columns | CosineMap):
        scale_columns(extractor, public)
        return None
    if is_table(public.x) and not isinstance(extractor, TableMap):
        report(Notice(_not_pretrained(server.config, spec)))
        return None
    path, from_cache = load_or_pretrain(
        spec,
        server.networks.whole[spec.label],
        server.public.aux,
        settings,
        server.cache or cache_folder(),
        watch,
    )
    if from_cache:
        report_epoch(settings.epochs, settings.epochs, "from the cache")
    return path


def _not_pretrained(config: Config, spec: PrototypeSpec) -> str:
    """Why an extractor for rows of numbers keeps its random weights, and what to do
    where these are never trained.
    """
    note = (
        f"{spec.label} is not pre-trained: of the networks for rows of numbers, only "
        "tabular is"
    )
    if config.frozen_features:
        note += (
            ". Its features stay random, while prototypes = ['linear'] uses the "
            "columns as they are"
        )
    return note


def prepare_clients(
    server: Server,
    federation: Federation,
    state: RunState,
    chosen: Sequence[str],
    embedding: PublicEmbedding | None,
    costs: Costs,
) -> tuple[RunState, list[Failure]]:
    """Collect the releases (P2, P3) and sums of newly chosen clients, and compute a
    head from all received so far.

    A head that training starts from is computed once.
    """
    clients = clients_to_prepare(server, state, chosen)
    before = replace(state, selected=tuple(clients))
    head = None
    if state.round == 0 or server.method.analytic:
        head = server.config.analytic_head
    prepared = before
    failures: list[Failure] = []
    with costs.phase("score"):
        if server.config.releases:
            prepared, without_release = collect_releases(
                server, federation, before, clients
            )
            failures += without_release
        if head is not None and head.sums:
            prepared, without_sums = collect_sums(
                server, federation, prepared, clients, head.sends
            )
            failures += without_sums
        if prepared is before:  # no one was asked
            return state, failures
        if head is not None:
            prepared = compute_heads(server, prepared, embedding)
    return prepared, failures


def clients_to_prepare(
    server: Server, state: RunState, chosen: Sequence[str]
) -> Sequence[str]:
    """Return whom to ask for releases and sums: those who are chosen and, before round
    1, all clients if `prepare` says so.

    A secure sum is made once, of all clients: a second sum would be another release.
    """
    secure = server.config.federation.secure
    if state.round == 0 and (server.config.prepares_all or secure):
        return server.clients
    return () if secure else chosen


def collect_releases(
    server: Server, federation: Federation, state: RunState, clients: Sequence[str]
) -> tuple[RunState, list[Failure]]:
    """Ask the clients that have not made a release. One that fails still counts in the
    average, not in the ensemble.

    Clients are asked when they are first chosen, not before: a client that never takes
    part spends no budget.
    """
    missing = [
        client
        for client in clients
        if client not in state.releases and not state.client(client).summed
    ]
    if not missing:
        return state, []
    releases: dict[str, Release] = {}
    accounts: dict[str, Account] = {}
    failures: list[Failure] = []
    orders = [server.orders.prepare(state, client) for client in missing]
    for reply in federation.ask(orders):
        if isinstance(reply, Release):
            releases[reply.client] = reply
            accounts[reply.client] = Account.from_json(reply.account)
        elif isinstance(reply, SecureTotal):
            state = with_summed_releases(server, state, reply)
            accounts |= reply.accounts
        elif isinstance(reply, Failure):
            failures.append(replace(reply, reason=f"no score: {reply.reason}"))
    state = state.with_releases(releases).with_accounts(missing, accounts)
    return state, failures


def with_summed_releases(
    server: Server, state: RunState, total: SecureTotal
) -> RunState:
    """Add the sum of a prototype's releases, with the noise of one release."""
    assert isinstance(total.order, PrepareOrder)
    label = server.label_of(total.order.client)
    release = pooled_release(
        server.scorer,
        total.order.public,
        server.config.privacy,
        total.vector,
        total.scale * math.sqrt(len(total.sites)),
        POOLED + label,
    )
    return state.with_pooled({label: release}, total.sites)


def collect_sums(
    server: Server,
    federation: Federation,
    state: RunState,
    clients: Sequence[str],
    sends: str,
) -> tuple[RunState, list[Failure]]:
    """Ask the clients whose sums have not been added yet. The state does not grow with
    the number of clients.
    """
    missing = [client for client in clients if not state.client(client).sums_received]
    if not missing:
        return state, []
    sums = {
        label: FeatureSums.from_arrays(arrays) for label, arrays in state.sums.items()
    }
    records: dict[str, int] = {}
    accounts: dict[str, Account] = {}
    failures: list[Failure] = []
    orders = [server.orders.sums(state, client, sends) for client in missing]
    for reply in federation.ask(orders):
        if isinstance(reply, Sums):
            label = server.label_of(reply.client)
            arrays = reply.arrays
            records[reply.client] = reply.records
            accounts[reply.client] = Account.from_json(reply.account)
        elif isinstance(reply, SecureTotal):
            label = server.label_of(reply.order.client)
            arrays = summed_arrays(reply)
            # the mean is all that is known
            count = int(arrays["counts"].sum()) >> SUM_BITS
            mean = max(1, count // len(reply.sites))
            records |= dict.fromkeys(reply.sites, mean)
            accounts |= reply.accounts
        else:
            if isinstance(reply, Failure):
                failures.append(replace(reply, reason=f"no sums: {reply.reason}"))
            continue
        added = FeatureSums.from_arrays(arrays)
        sums[label] = sums[label] + added if label in sums else added
    totals = {label: total.to_arrays() for label, total in sums.items()}
    state = state.with_sums(totals, records).with_accounts(missing, accounts)
    return state, failures


def summed_arrays(total: SecureTotal) -> Arrays:
    """Return the secure sum of a prototype's sums of features, as arrays."""
    order = total.order
    assert isinstance(order, SumsOrder)
    shapes = sums_shapes(order.classes, order.width, order.sends)
    return from_vector(total.vector, shapes)
