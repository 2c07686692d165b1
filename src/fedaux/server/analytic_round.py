"""Heads that are computed: sums of features from clients that are new, and the head of all sums or releases so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import nn

from fedaux.core.messages import Account, Arrays, Failure, Federation, Sums
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.core.timing import Costs, payload_bytes
from fedaux.methods.analytic_heads import AnalyticHead, Head, shrunk
from fedaux.methods.feature_sums import FeatureSums, Matrix
from fedaux.methods.hooks import hooks_of
from fedaux.models import HeadFeatures, Prototype, flatten_state
from fedaux.models.inference import Rows, transform_rows
from fedaux.scoring.class_sums import pool
from fedaux.scoring.closed_form import discriminant_head, set_head
from fedaux.scoring.teacher_weights import PublicEmbedding, trusted
from fedaux.server.evaluation import evaluations
from fedaux.server.run_state import RunState
from fedaux.server.server import Server


def collect_sums(
    server: Server, federation: Federation, state: RunState, clients: Sequence[str], costs: Costs
) -> tuple[RunState, list[Failure]]:
    """Ask those that are not in the sums yet: what is kept does not grow with them."""
    head, missing = server.config.analytic_head, [client for client in clients if client not in state.summed]
    if head is None or not missing:
        return state, []
    orders = [server.orders.sums(state, client, head.sends) for client in missing]
    sums = {label: FeatureSums.from_arrays(arrays) for label, arrays in state.sums.items()}
    accounts, records, failures = dict[str, Account](), dict[str, int](), list[Failure]()
    for reply in federation.ask(costs.count_sent(orders)):
        costs.received += payload_bytes(reply)
        if isinstance(reply, Sums):
            label, added = server.label_of(reply.client), FeatureSums.from_arrays(reply.arrays)
            sums[label] = sums[label] + added if label in sums else added
            accounts[reply.client], records[reply.client] = Account.from_json(reply.account), reply.records
        elif isinstance(reply, Failure):
            failures.append(replace(reply, reason=f"no sums: {reply.reason}"))
    arrays = {label: total.to_arrays() for label, total in sums.items()}
    return state.with_sums(arrays, records).with_accounts(missing, accounts), failures


def compute_heads(server: Server, state: RunState, embedding: PublicEmbedding | None) -> RunState:
    """Each prototype's head from all that its clients have sent; where that is nothing, it stays as it was."""
    head, weights = server.config.analytic_head, dict(state.weights)
    assert head is not None
    if head.sends == "releases":
        assert embedding is not None
        return closed_form_heads(server, state, embedding)
    options = dict(server.config.method_options) if server.method.analytic else {}
    name = server.config.method if server.method.analytic else server.config.head_init
    hooks = cast(AnalyticHead, hooks_of(name, options))
    for label, arrays in state.sums.items():
        mapped = head_features(server, state, label)
        covariance = partial(public_covariance, server, label, mapped)
        computed = hooks.head(FeatureSums.from_arrays(arrays).value(), covariance)
        weights[label] = with_head(server, label, weights[label], mapped, computed)
    return replace(state, weights=weights)


def closed_form_heads(server: Server, state: RunState, embedding: PublicEmbedding) -> RunState:
    """Heads from the releases at hand: they cost no further privacy."""
    weights = dict(state.weights)
    for label in weights:
        clients = [client for client in sorted(state.releases) if server.label_of(client) == label]
        if clients:
            pooled = pool(trusted([state.releases[client] for client in clients]), server.classes)
            head = discriminant_head(state.public[label], embedding.reference[label], pooled)
            learner = cast(Prototype, server.learners.loaded(label, weights[label]))
            set_head(learner, *head)
            weights[label] = flatten_state(learner)
    return replace(state, weights=weights)


def head_features(server: Server, state: RunState, label: str) -> HeadFeatures:
    """What the sums are of."""
    mapped = HeadFeatures(server.learners.networks[label].width, server.config.random_features)
    mapped.standardise(state.standardisation.get(label, {}))
    return mapped


def public_covariance(server: Server, label: str, mapped: HeadFeatures) -> Matrix:
    """Of these features over D⁻."""

    def transform(rows: Rows) -> Rows:
        with torch.inference_mode():
            return np.asarray(mapped(torch.from_numpy(rows)).numpy())

    psi = transform_rows(server.public.negatives(label), transform).astype(np.float64)
    return shrunk(np.cov(psi, rowvar=False, bias=True).reshape(mapped.width, -1), len(psi))


def with_head(server: Server, label: str, weights: Arrays, mapped: HeadFeatures, head: Head) -> Arrays:
    """The learner's weights with this head, which a whole network has on h0's own features."""
    learner = cast(Prototype, server.learners.loaded(label, weights))
    linear: nn.Module = nn.Linear(mapped.width, server.classes)
    with torch.no_grad():
        for tensor, values in zip(linear.parameters(), head, strict=True):
            tensor.copy_(torch.from_numpy(values))
    if not isinstance(learner.features, HeadFeatures):
        linear = mapped.fold(cast(nn.Linear, linear))
    learner.head.load_state_dict(linear.state_dict())
    return flatten_state(learner)


def finish_round(
    server: Server, state: RunState, chosen: Sequence[str], failures: Sequence[Failure], costs: Costs
) -> RunState:
    """The state after a round in which heads were computed and nothing was trained."""
    with costs.phase("test"):
        tests = evaluations(server.learners, state.weights, server.public.test_inputs, server.classes)
    records = {client: release.records for client, release in state.releases.items()} | state.summed
    part = [client for client in sorted(chosen) if client in records]
    result = RoundResult(
        round=state.round + 1,
        accuracy={label: one.accuracy for label, one in tests.items()},
        client_metrics={client: ClientMetrics(records[client], 0.0, 0.0) for client in part},
        failures=tuple(failures),
        epsilon=state.max_epsilon,
        bytes_sent=costs.sent,
        bytes_received=costs.received,
        seconds=costs.seconds,
        metrics={label: one.summary() for label, one in tests.items()},
        confusion={label: one.table.tolist() for label, one in tests.items()},
    )
    return state.after(state.weights, result)
