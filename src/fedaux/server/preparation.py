"""Before a round: pre-trained extractors and what scorers publish (P1), releases and
sums of new clients (P2, P3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.core.accounts import Account
from fedaux.core.failures import Failure
from fedaux.core.io import cache_folder
from fedaux.core.progress import WorkProgress
from fedaux.core.timing import Costs, payload_bytes
from fedaux.messages import (
    DataOrder,
    Federation,
    Order,
    PrepareOrder,
    Release,
    Sums,
    SumsOrder,
)
from fedaux.messages.replies import sums_shapes
from fedaux.methods.analytic_heads import SUM_BITS, analytic_hooks
from fedaux.methods.summed_update import from_vector, vector_length
from fedaux.models import flatten_state, published_weights
from fedaux.models.pretraining.store import load_or_pretrain
from fedaux.models.pretraining.trainer import EpochMetrics
from fedaux.models.registry import carried_weights
from fedaux.privacy.module_validation import validate_module
from fedaux.scoring.pooled import pooled_release, shared_noise_scale
from fedaux.scoring.teacher_weights import PublicEmbedding
from fedaux.server.analytic_round import compute_heads
from fedaux.server.run_state import POOLED, RunState
from fedaux.server.secure_sum import secure_total
from fedaux.server.server import Server

T = TypeVar("T", Release, Sums)
D = TypeVar("D", bound=DataOrder)


def initial_state(server: Server) -> RunState:
    """Return the first state: random or pre-trained weights, and what the method's
    scorer publishes, if it has one.
    """
    config, networks = server.config, server.networks
    if not server.method.pretrained:
        refuse_carried_weights(server)
    for spec in config.prototypes:
        if server.method.pretrained and (
            config.pretrain.epochs > 0
            or published_weights(networks.extractors[spec.label])
        ):
            pretrain_extractor(server, spec)
    if config.privacy.private_training:
        for learner in networks.trained.values():
            validate_module(learner, training=True)
    weights = networks.weights()
    kept = {
        label: server.hooks.server_state(arrays["parameters"])
        for label, arrays in weights.items()
    }
    state = RunState(
        config, 0, weights, method_state=kept, assignment=server.site_labels
    )
    on_features = config.head_only or config.analytic_head is not None
    if not (config.releases or on_features):
        return state
    for extractor in networks.extractors.values():
        # every client would refuse it, and keep the reason to itself
        validate_module(extractor)
    state = replace(
        state,
        extractors={
            label: flatten_state(module)
            for label, module in networks.extractors.items()
        },
    )
    server.restore(state)
    if on_features and config.head_features == "standardised":
        state = replace(state, standardisation=server.public.standardisation())
    return (
        replace(state, public=server.public.publish(server.scorer))
        if config.releases
        else state
    )


def refuse_carried_weights(server: Server) -> None:
    """Refuse networks with weights of their own in a method from random weights: it
    would be another method.
    """
    for spec in server.config.prototypes:
        carried = carried_weights(
            spec, server.public.aux.shape, server.networks.extractors[spec.label]
        )
        if carried:
            method = server.config.method
            raise ConfigError(
                f"prototype {spec.name!r} brings weights of its own, {carried[0]} for "
                f"one, whatever the seed is; {server.method.label} starts from random "
                f"ones. Set method = '{method}+p' to start from yours, or load them in "
                "a method `restore()` of the extractor, with their folder as "
                f"`published_weights`: then {method} starts at random and {method}+p "
                "from them."
            )


def pretrain_extractor(server: Server, spec: PrototypeSpec) -> Path:
    """Load a prototype's pre-trained extractor, training it if necessary (P1), and
    return its file.
    """
    config = server.config.pretrain
    network, extractor = (
        server.networks.whole[spec.label],
        server.networks.extractors[spec.label],
    )

    def report(epoch: int, epochs: int, note: str) -> None:
        server.on_progress(
            WorkProgress(f"pre-training {spec.label}", epoch, epochs, note, "pretrain")
        )

    def watch(epoch: EpochMetrics) -> None:
        figures = f"loss {epoch.loss:.3f}, rank {epoch.quality.rank:.1f}, {epoch.views_per_second:,.0f} views/s"
        report(epoch.epoch, config.epochs, figures)

    if published_weights(extractor):
        extractor.restore()  # type: ignore[operator]
        report(1, 1, "published weights")
        return Path(published_weights(extractor))
    path, known = load_or_pretrain(
        spec, network, server.public.aux, config, server.cache or cache_folder(), watch
    )
    if known:
        report(config.epochs, config.epochs, "from the cache")
    return path


def prepare(
    server: Server,
    federation: Federation,
    state: RunState,
    chosen: Sequence[str],
    embedding: PublicEmbedding | None,
    costs: Costs,
) -> tuple[RunState, list[Failure]]:
    """Collect the releases (P2, P3) and sums of newly chosen clients, and compute a
    head from all received so far.

    Before round 1 all clients are asked if `prepare` says so. A head that training
    starts from is computed once.
    """
    config, first = server.config, state.round == 0
    head = config.analytic_head if first or server.method.analytic else None
    secure = config.federation.secure  # a second sum would be another release
    asked = (
        server.clients
        if first and (config.prepares_all or secure)
        else []
        if secure
        else chosen
    )
    before, failures = replace(state, selected=tuple(asked)), list[Failure]()
    prepared = before
    with costs.phase("score"):
        if config.releases:
            prepared, failures = collect_releases(
                server, federation, before, asked, costs
            )
        if head is not None and head.sums:
            prepared, failed = collect_sums(
                server, federation, prepared, asked, head.sends, costs
            )
            failures = [*failures, *failed]
        if prepared is before:
            return state, failures
        return prepared if head is None else compute_heads(
            server, prepared, embedding
        ), failures


def collect_releases(
    server: Server,
    federation: Federation,
    state: RunState,
    clients: Sequence[str],
    costs: Costs,
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
    orders = [server.orders.prepare(state, client) for client in missing]
    if server.config.federation.secure:
        return sum_releases(server, federation, state, orders, costs)
    failures: list[Failure] = []
    replies = _replies(Release, federation, orders, "no score", failures, costs)
    releases = {release.client: release for release in replies}
    accounts = {
        client: Account.from_json(release.account)
        for client, release in releases.items()
    }
    return state.with_releases(releases).with_accounts(missing, accounts), failures


def collect_sums(
    server: Server,
    federation: Federation,
    state: RunState,
    clients: Sequence[str],
    sends: str,
    costs: Costs,
) -> tuple[RunState, list[Failure]]:
    """Ask the clients whose sums have not been added yet. The state does not grow with
    the number of clients.
    """
    missing = [client for client in clients if not state.client(client).sums_received]
    if not missing:
        return state, []
    orders = [server.orders.sums(state, client, sends) for client in missing]
    if server.config.federation.secure:
        return sum_features(server, federation, state, orders, costs)
    hooks = analytic_hooks(server.config)
    sums = {label: hooks.read(arrays) for label, arrays in state.sums.items()}
    accounts, records, failures = (
        dict[str, Account](),
        dict[str, int](),
        list[Failure](),
    )
    for reply in _replies(Sums, federation, orders, "no sums", failures, costs):
        label, added = server.label_of(reply.client), hooks.read(reply.arrays)
        sums[label] = sums[label] + added if label in sums else added
        accounts[reply.client], records[reply.client] = (
            Account.from_json(reply.account),
            reply.records,
        )
    arrays = {label: total.to_arrays() for label, total in sums.items()}
    return state.with_sums(arrays, records).with_accounts(missing, accounts), failures


def sum_releases(
    server: Server,
    federation: Federation,
    state: RunState,
    orders: Sequence[PrepareOrder],
    costs: Costs,
) -> tuple[RunState, list[Failure]]:
    """Collect the releases of all clients of each prototype as one secure sum, with the
    noise of one release.
    """
    privacy, scorer, failures = server.config.privacy, server.scorer, list[Failure]()
    for label, group in by_prototype(server, orders).items():
        public = group[0].public
        noise = partial(shared_noise_scale, scorer, public, privacy)
        total, failed = secure_total(
            server, state, federation, group, group[0].size, costs, noise
        )
        failures += failed
        if total is not None:
            scale = total.terms.scale * math.sqrt(len(total.sites))
            release = pooled_release(
                scorer, public, privacy, total.vector, scale, POOLED + label
            )
            state = state.with_pooled({label: release}, total.sites).with_accounts(
                total.sites, total.accounts
            )
    return state, failures


def sum_features(
    server: Server,
    federation: Federation,
    state: RunState,
    orders: Sequence[SumsOrder],
    costs: Costs,
) -> tuple[RunState, list[Failure]]:
    """Collect the sums of features of all clients of each prototype as one secure sum,
    without noise.
    """
    failures, sums = list[Failure](), dict(state.sums)
    for label, group in by_prototype(server, orders).items():
        shapes = sums_shapes(server.classes, group[0].width, group[0].sends)
        total, failed = secure_total(
            server, state, federation, group, vector_length(shapes), costs
        )
        failures += failed
        if total is not None:
            sums[label] = from_vector(total.vector, shapes)
            records = int(sums[label]["counts"].sum()) >> SUM_BITS
            # the mean is all that is known
            received = dict.fromkeys(total.sites, max(1, records // len(total.sites)))
            state = state.with_sums(sums, received).with_accounts(
                total.sites, total.accounts
            )
    return state, failures


def by_prototype(server: Server, orders: Sequence[D]) -> dict[str, list[D]]:
    """Group orders: the vectors of one prototype's clients have one length."""
    groups: dict[str, list[D]] = {}
    for order in orders:
        groups.setdefault(server.label_of(order.client), []).append(order)
    return groups


def _replies(
    kind: type[T],
    federation: Federation,
    orders: Sequence[Order],
    noun: str,
    failures: list[Failure],
    costs: Costs,
) -> Iterator[T]:
    """Replies of this kind as they arrive; `failures` gets those of the others."""
    for reply in federation.ask(costs.count_sent(orders)):
        costs.received += payload_bytes(reply)
        if isinstance(reply, kind):
            yield reply
        elif isinstance(reply, Failure):
            failures.append(replace(reply, reason=f"{noun}: {reply.reason}"))
