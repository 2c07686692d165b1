"""Heads that are computed from all sums or releases so far, and the rounds in which
nothing is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedaux.core.arrays import Arrays
from fedaux.core.failures import Failure
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.core.timing import Costs
from fedaux.messages import Release
from fedaux.methods.analytic_heads import Head, Matrix, analytic_hooks, shrunk
from fedaux.models import HeadFeatures, Prototype, flatten_state
from fedaux.models.inference import Rows, transform_rows
from fedaux.scoring.class_counts import unknown_classes
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.teacher_weights import PublicEmbedding, cap_precision
from fedaux.server.networks import evaluations
from fedaux.server.run_state import RunState
from fedaux.server.server import Server


def compute_heads(
    server: Server, state: RunState, embedding: PublicEmbedding | None
) -> RunState:
    """Compute each prototype's head from everything its clients have sent; without any,
    the head stays as it was.
    """
    head, weights = server.config.analytic_head, dict(state.weights)
    assert head is not None
    if head.sends == "releases":
        assert embedding is not None
        return private_heads(server, state, embedding)
    hooks = analytic_hooks(server.config)
    for label, arrays in state.sums.items():
        mapped = head_features(server, state, label)
        covariance = partial(public_covariance, server, label, mapped)
        computed = hooks.head(hooks.read(arrays).value(), covariance)
        weights[label] = with_head(server, label, weights[label], mapped, computed)
    return replace(state, weights=weights)


def private_heads(
    server: Server, state: RunState, embedding: PublicEmbedding
) -> RunState:
    """Compute heads from the releases received so far, which costs no further
    privacy.
    """
    weights, scorer = dict(state.weights), cast(ClassEmbeddingScorer, server.scorer)
    for label in weights:
        if releases := prototype_releases(server, state, label):
            head = scorer.head(
                state.public[label], embedding.reference[label], cap_precision(releases)
            )
            learner = cast(Prototype, server.networks.loaded(label, weights[label]))
            set_head(learner, *head)
            weights[label] = flatten_state(learner)
    return replace(state, weights=weights)


def prototype_releases(server: Server, state: RunState, label: str) -> list[Release]:
    """Return the releases of a prototype's clients, or the one of their secure sum."""
    if label in state.pooled:
        return [state.pooled[label]]
    return [
        state.releases[client]
        for client in sorted(state.releases)
        if server.label_of(client) == label
    ]


def find_unknown_classes(
    server: Server, state: RunState
) -> dict[str, list[tuple[int, float, float]]]:
    """Return the classes that each prototype's private head knows nothing of; {} for
    heads that have other sources.
    """
    if server.method.sends != "releases":
        return {}
    scorer, found = cast(ClassEmbeddingScorer, server.scorer), {}
    for label in state.weights:
        releases = prototype_releases(server, state, label)
        if releases and (
            unknown := unknown_classes(
                [scorer.class_values(state.public[label], r) for r in releases]
            )
        ):
            found[label] = unknown
    return found


def head_features(server: Server, state: RunState, label: str) -> HeadFeatures:
    """Return the features that clients sum up for a prototype's head."""
    mapped = HeadFeatures(
        server.networks.whole[label].width, server.config.random_features
    )
    mapped.standardise(state.standardisation.get(label, {}))
    return mapped


def public_covariance(server: Server, label: str, mapped: HeadFeatures) -> Matrix:
    """Return the shrunk covariance of these features over D⁻."""

    def transform(rows: Rows) -> Rows:
        with torch.inference_mode():
            return np.asarray(mapped(torch.from_numpy(rows)).numpy())

    psi = transform_rows(server.public.negatives(label), transform).astype(np.float64)
    return shrunk(
        np.cov(psi, rowvar=False, bias=True).reshape(mapped.width, -1), len(psi)
    )


def with_head(
    server: Server, label: str, weights: Arrays, mapped: HeadFeatures, head: Head
) -> Arrays:
    """Return the learner's weights with this head; in a whole network, the head is
    converted to h0's own features.
    """
    learner = cast(Prototype, server.networks.loaded(label, weights))
    linear: nn.Module = nn.Linear(mapped.width, server.classes)
    with torch.no_grad():
        for tensor, values in zip(linear.parameters(), head, strict=True):
            tensor.copy_(torch.from_numpy(values))
    if not isinstance(learner.features, HeadFeatures):
        linear = mapped.fold(cast(nn.Linear, linear))
    learner.head.load_state_dict(linear.state_dict())
    return flatten_state(learner)


def set_head(
    model: Prototype, weights: NDArray[np.float32], bias: NDArray[np.float32]
) -> None:
    """Load a head on h0's own features into a prototype, in the form it needs; its
    extractor is unchanged.
    """
    head = (
        torch.from_numpy(weights).to(model.head.weight.device),
        torch.from_numpy(bias).to(model.head.bias.device),
    )
    if isinstance(model.features, HeadFeatures):
        head = model.features.unfold(*head)
    with torch.no_grad():
        model.head.weight.copy_(head[0])
        model.head.bias.copy_(head[1])


def finish_round(
    server: Server,
    state: RunState,
    chosen: Sequence[str],
    failures: Sequence[Failure],
    costs: Costs,
) -> RunState:
    """Return the state after a round in which heads were computed and nothing was
    trained.
    """
    with costs.phase("test"):
        tests = evaluations(
            server.networks, state.weights, server.public.test_inputs, server.classes
        )
    records = state.records
    part = [client for client in sorted(chosen) if client in records]
    result = RoundResult(
        round=state.round + 1,
        accuracy={label: one.accuracy for label, one in tests.items()},
        client_metrics={
            client: ClientMetrics(records[client], 0.0, 0.0) for client in part
        },
        failures=tuple(failures),
        epsilon=state.max_epsilon,
        bytes_sent=costs.sent,
        bytes_received=costs.received,
        seconds=costs.seconds,
        metrics={label: one.summary() for label, one in tests.items()},
        unknown_classes=find_unknown_classes(server, state),
        confusion={label: one.table.tolist() for label, one in tests.items()},
    )
    return state.after(state.weights, result)
