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

from fedaux.core.arrays import Arrays, Matrix
from fedaux.core.failures import Failure
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.core.timing import Costs
from fedaux.messages import Release
from fedaux.methods.analytic_heads import (
    FeatureSums,
    Head,
    analytic_hooks,
    shrunk,
)
from fedaux.models import HeadFeatures, Prototype, flatten_state
from fedaux.models.inference import Rows, transform_rows
from fedaux.scoring.class_counts import unknown_classes
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.teacher_weights import PublicEmbedding, cap_precision
from fedaux.server.class_weights import class_weights
from fedaux.server.networks import calibrations, evaluations
from fedaux.server.run_state import RunState
from fedaux.server.server import Server


def compute_heads(
    server: Server, state: RunState, embedding: PublicEmbedding | None
) -> RunState:
    """Compute each prototype's head from everything its clients have sent. Without any,
    the head stays as it was.
    """
    settings = server.config.analytic_head
    assert settings is not None
    if settings.sends == "releases":
        assert embedding is not None
        return private_heads(server, state, embedding)
    hooks = analytic_hooks(server.config)
    weights = dict(state.weights)
    for label, arrays in state.sums.items():
        features = head_features(server, state, label)
        covariance = partial(public_covariance, server, label, features)
        sums = FeatureSums.from_arrays(arrays).value()
        head = hooks.head(sums, covariance)
        counted = class_weights(
            server.config, server.classes, server.scorer, state, label, []
        )
        head = Head(head.weight, head.bias + np.log(counted))
        weights[label] = with_head(server, label, weights[label], features, head)
    return replace(state, weights=weights)


def private_heads(
    server: Server, state: RunState, embedding: PublicEmbedding
) -> RunState:
    """Compute heads from the releases received so far, which costs no further
    privacy.
    """
    scorer = cast(ClassEmbeddingScorer, server.scorer)
    weights = dict(state.weights)
    for label in weights:
        releases = prototype_releases(server, state, label)
        if not releases:
            continue
        capped = cap_precision(releases)
        counted = class_weights(
            server.config, server.classes, scorer, state, label, capped
        )
        head = scorer.head(
            state.public[label], embedding.reference[label], capped, weights=counted
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
    """Return the classes that each prototype's private head knows nothing of, or {} for
    heads that have other sources.
    """
    if server.method.sends != "releases":
        return {}
    scorer = cast(ClassEmbeddingScorer, server.scorer)
    by_label: dict[str, list[tuple[int, float, float]]] = {}
    for label in state.weights:
        public = state.public[label]
        values = [
            scorer.class_values(public, release)
            for release in prototype_releases(server, state, label)
        ]
        unknown = unknown_classes(values) if values else []
        if unknown:
            by_label[label] = unknown
    return by_label


def head_features(server: Server, state: RunState, label: str) -> HeadFeatures:
    """Return the features that clients sum up for a prototype's head."""
    width = server.networks.whole[label].width
    features = HeadFeatures(width, server.config.random_features)
    features.standardise(state.standardisation.get(label, {}))
    return features


def public_covariance(server: Server, label: str, features: HeadFeatures) -> Matrix:
    """Return the shrunk covariance of these features over D⁻."""

    def transform(rows: Rows) -> Rows:
        with torch.inference_mode():
            return np.asarray(features(torch.from_numpy(rows)).numpy())

    psi = transform_rows(server.public.negatives(label), transform).astype(np.float64)
    covariance = np.cov(psi, rowvar=False, bias=True)
    return shrunk(covariance.reshape(features.width, -1), len(psi))


def with_head(
    server: Server, label: str, weights: Arrays, features: HeadFeatures, head: Head
) -> Arrays:
    """Return the learner's weights with this head, in a whole network, the head is
    converted to h0's own features.
    """
    learner = cast(Prototype, server.networks.loaded(label, weights))
    linear: nn.Module = nn.Linear(features.width, server.classes)
    with torch.no_grad():
        for tensor, values in zip(linear.parameters(), head, strict=True):
            tensor.copy_(torch.from_numpy(values))
    if not isinstance(learner.features, HeadFeatures):
        linear = features.fold(cast(nn.Linear, linear))
    learner.head.load_state_dict(linear.state_dict())
    return flatten_state(learner)


def set_head(
    model: Prototype, weights: NDArray[np.float32], bias: NDArray[np.float32]
) -> None:
    """Load a head on h0's own features into a prototype, in the form it needs. Its
    extractor is unchanged.
    """
    weight_tensor = torch.from_numpy(weights).to(model.head.weight.device)
    bias_tensor = torch.from_numpy(bias).to(model.head.bias.device)
    if isinstance(model.features, HeadFeatures):
        weight_tensor, bias_tensor = model.features.unfold(weight_tensor, bias_tensor)
    with torch.no_grad():
        model.head.weight.copy_(weight_tensor)
        model.head.bias.copy_(bias_tensor)


def finish_round(
    server: Server, state: RunState, failures: Sequence[Failure], costs: Costs
) -> RunState:
    """Return the state after a round in which heads were computed and nothing was
    trained.
    """
    with costs.phase("test"):
        tests = evaluations(
            server.networks, state.weights, server.public.test_inputs, server.classes
        )
    records = state.records
    client_metrics = {
        client: ClientMetrics(records[client], 0.0, 0.0)
        for client in sorted(state.selected)
        if client in records
    }
    result = RoundResult(
        round=state.round + 1,
        accuracy={label: test.accuracy for label, test in tests.items()},
        client_metrics=client_metrics,
        failures=tuple(failures),
        epsilon=state.max_epsilon,
        bytes_sent=costs.sent,
        bytes_received=costs.received,
        seconds=costs.seconds,
        metrics={label: test.summary() for label, test in tests.items()},
        unknown_classes=find_unknown_classes(server, state),
        confusion={label: test.table.tolist() for label, test in tests.items()},
        calibration=calibrations(tests),
    )
    return state.after(state.weights, result)
