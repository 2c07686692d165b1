"""Computed heads over a scripted federation: who is asked, once, and what becomes of
the sums.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedaux.client.sums import sum_features
from fedaux.core.failures import Failure
from fedaux.data.records import Records
from fedaux.messages import Order, Reply, Sums, SumsOrder, TrainOrder
from fedaux.methods.analytic_heads import FeatureSums, Head, Ridge
from fedaux.models import Prototype, load_state
from fedaux.models.registry import HeadFeatures
from fedaux.server.analytic_round import head_features, public_covariance, with_head
from fedaux.server.loop import QuorumError, run
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from helpers.scripted import (
    CLIENTS,
    CONFIG,
    MLP,
    Scripted,
    account,
    honest,
    make_server,
)

RIDGE = replace(CONFIG, method="ridge", fraction=0.5, rounds=4)


def rows(client: str) -> Records:
    """Features of a client: one class each, but for the last, which has the others'
    too.
    """
    rng, place = np.random.default_rng([*client.encode()]), CLIENTS.index(client)
    labels = np.full(20, place) if place < 3 else rng.integers(3, size=20)
    return Records(
        (np.eye(3, 6)[labels] + rng.normal(size=(20, 6))).astype(np.float32), labels
    )


def answer(order: Order) -> Reply:
    if not isinstance(order, SumsOrder):
        return honest(order)
    features = HeadFeatures(6, order.random_features)
    features.standardise(order.standardisation)
    sums = sum_features(features, rows(order.client), order.classes, order.sends)
    return Sums(order.client, 20, account(), FeatureSums.of(sums).to_arrays())


def answers(**others: Any) -> Scripted:
    return Scripted({**dict.fromkeys(CLIENTS, answer), **others})


def rounds_of(
    federation: Scripted,
    config: Any = RIDGE,
    state: RunState | None = None,
    save: Any = None,
) -> RunState:
    return run(make_server(config), federation, state, save or (lambda state: None))


def test_each_client_is_asked_once_and_what_is_kept_does_not_grow() -> None:
    federation, saved = answers(), list[RunState]()
    state = rounds_of(federation, replace(RIDGE, rounds=8), save=saved.append)
    assert all(isinstance(order, SumsOrder) for order in federation.asked)
    asked = [order.client for order in federation.asked]
    assert sorted(asked) == sorted(set(asked)) == sorted(state.sums_received)
    sizes = [
        [array.shape for array in state.sums.get(MLP.label, {}).values()]
        for state in saved
    ]
    assert sizes[1:] == [[(3, 6), (3,), (21,)]] * (len(saved) - 1)
    assert [len(result.client_metrics) for result in state.history] == [2] * 8
    assert {
        item.records
        for result in state.history
        for item in result.client_metrics.values()
    } == {20}


def test_the_head_is_that_of_all_sums_so_far() -> None:
    state = rounds_of(answers(), replace(RIDGE, fraction=1.0, rounds=1))
    server = make_server(RIDGE)
    start = initial_state(server)
    server.restore(start)
    mapped = head_features(server, start, MLP.label)
    pooled = Records(
        np.concatenate([rows(c).x for c in CLIENTS]),
        np.concatenate([rows(c).labels for c in CLIENTS]),
    )
    expected = Ridge().head(
        sum_features(mapped, pooled, 3, "moments"), lambda: np.eye(6)
    )
    found = server.networks.loaded(MLP.label, state.weights[MLP.label])
    assert isinstance(found, Prototype)
    # a whole network: on raw features
    logits = torch.from_numpy(pooled.x) @ found.head.weight.T + found.head.bias
    psi = mapped(torch.from_numpy(pooled.x)).double().numpy()
    assert np.allclose(
        logits.detach().numpy(), psi @ expected.weight.T + expected.bias, atol=1e-4
    )


def test_a_stopped_run_goes_on_with_the_sums_that_it_has() -> None:
    whole = rounds_of(answers())
    half = rounds_of(answers(), replace(RIDGE, rounds=2))
    rest = answers()
    again = rounds_of(rest, state=replace(half, config=RIDGE))
    assert {order.client for order in rest.asked}.isdisjoint(half.sums_received)
    assert np.array_equal(
        again.weights[MLP.label]["parameters"], whole.weights[MLP.label]["parameters"]
    )


def test_who_fails_is_asked_again_and_too_few_end_the_run() -> None:
    def fails(order: Order) -> Reply:
        return Failure(order.client, "out of order")

    federation = answers(b=fails)
    state = rounds_of(federation, replace(RIDGE, fraction=1.0))
    assert [order.client for order in federation.asked] == [*CLIENTS, "b", "b", "b"]
    assert all(
        result.failures[0].reason == "no sums: out of order" for result in state.history
    )
    with pytest.raises(QuorumError, match="1 contributions of 4"):
        rounds_of(answers(b=fails, c=fails, d=fails), replace(RIDGE, fraction=1.0))


@pytest.mark.parametrize(("prepare", "count"), [("selected", 2), ("all", 4)])
def test_training_starts_from_the_head_of_those_that_are_prepared(
    prepare: str, count: int
) -> None:
    federation = answers()
    state = rounds_of(
        federation, replace(RIDGE, method="fedavg", head_init="ridge", prepare=prepare)
    )
    assert len(federation.of_kind(SumsOrder)) == len(state.sums_received) == count
    kinds = [type(order) for order in federation.asked]
    assert kinds == [SumsOrder] * count + [TrainOrder] * 8
    sent = federation.of_kind(TrainOrder)[0].weights["parameters"]
    assert not np.array_equal(
        sent, initial_state(make_server(RIDGE)).weights[MLP.label]["parameters"]
    )


@pytest.mark.parametrize("head_only", [True, False])
def test_a_head_on_mapped_features_is_put_where_the_network_has_its_own(
    head_only: bool,
) -> None:
    server = make_server(replace(RIDGE, head_only=head_only))
    state = initial_state(server)
    server.restore(state)
    mapped, rng = head_features(server, state, MLP.label), np.random.default_rng(0)
    head = Head(rng.normal(size=(3, 6)), rng.normal(size=3))
    weights = with_head(server, MLP.label, state.weights[MLP.label], mapped, head)
    learner = server.networks.trained[MLP.label].eval()
    load_state(learner, weights)
    test = server.public.test_inputs(MLP.label)
    assert test is not None
    assert server.public.test is not None
    features = server.public.h0[MLP.label].features(server.public.test).x
    expected = (
        mapped(torch.from_numpy(np.array(features))).double().numpy() @ head.weight.T
        + head.bias
    )
    assert np.allclose(learner(test.tensor()).detach().numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("method", ["ridge", "discriminant", "class-means"])
def test_class_weights_move_the_bias_of_the_head(method: str) -> None:
    """Balanced weights are those of the counts in the sums."""
    once = replace(RIDGE, method=method, fraction=1.0, rounds=1)
    heads = []
    for weights in ((), (1.0, 2.0, 4.0), "balanced"):
        state = rounds_of(answers(), replace(once, class_weights=weights))
        server = make_server(once)
        learner = server.networks.loaded(MLP.label, state.weights[MLP.label])
        assert isinstance(learner, Prototype)
        heads.append(learner.head.bias.detach().double().numpy().copy())
        counts = FeatureSums.from_arrays(state.sums[MLP.label]).value().counts
    np.testing.assert_allclose(heads[1] - heads[0], np.log([1, 2, 4]), atol=1e-4)
    expected = np.log(counts.sum() / 3 / counts)
    np.testing.assert_allclose(heads[2] - heads[0], expected, atol=1e-4)


def test_the_public_covariance_is_that_of_the_features_that_are_summed() -> None:
    server = make_server(RIDGE)
    state = initial_state(server)
    server.restore(state)
    covariance = public_covariance(
        server, MLP.label, head_features(server, state, MLP.label)
    )
    assert covariance.shape == (6, 6)
    # standardised, but for features that hardly vary
    assert np.trace(covariance) == pytest.approx(6, rel=0.05)
