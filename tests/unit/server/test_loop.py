"""The loop over a scripted federation: who is asked, who is waited for, and what a lost
round leaves behind.
"""

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from fedaux import Config
from fedaux.core.accounts import Account
from fedaux.core.progress import ProgressEvent, ReplyReceived, WorkProgress, report_to
from fedaux.messages import Order, PrepareOrder, Reply, TrainOrder, Update
from fedaux.server.loop import QuorumError, quorum, run, sample
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from helpers.scripted import (
    CLIENTS,
    CONFIG,
    MLP,
    WIDE,
    Scripted,
    account,
    fails,
    honest,
    make_server,
    update,
)

AVERAGE = replace(CONFIG, method="fedavg")


def silent(order: Order) -> Reply | None:
    return None


def rounds_of(federation: Scripted, config: Config = CONFIG, **start: Any) -> RunState:
    return run(
        make_server(config),
        federation,
        start.get("state"),
        start.get("save", lambda state: None),
    )


def same_weights(one: RunState, other: RunState) -> bool:
    return all(
        np.array_equal(array, other.weights[label][name])
        for label, arrays in one.weights.items()
        for name, array in arrays.items()
    )


def test_a_round_without_distillation_is_the_average_of_its_updates() -> None:
    federation = Scripted()
    server = make_server(replace(AVERAGE, rounds=1))
    start = initial_state(server)
    state = run(server, federation, start, lambda state: None)
    updates = [update(order) for order in federation.of_kind(TrainOrder)]
    total = sum(each.records for each in updates)
    naive = (
        sum(
            each.records * each.weights["parameters"].astype(np.float64)
            for each in updates
        )
        / total
    )
    assert np.allclose(state.weights[MLP.label]["parameters"], naive, atol=1e-6)
    assert np.array_equal(
        state.weights[MLP.label]["counters"], start.weights[MLP.label]["counters"] + 7
    )


def test_state_is_saved_after_preparation_after_releases_and_after_every_round() -> (
    None
):
    saved: list[RunState] = []
    rounds_of(Scripted(), save=saved.append)
    assert [(state.round, len(state.releases)) for state in saved] == [
        (0, 0),
        (0, 4),
        (1, 4),
        (2, 4),
    ]
    rounds_of(Scripted(), AVERAGE, save=(plain := list[RunState]()).append)
    assert [state.round for state in plain] == [0, 1, 2]


# Releases


def test_each_client_is_asked_once_for_its_release_and_when_it_is_first_chosen() -> (
    None
):
    federation = Scripted()
    state = rounds_of(federation, replace(CONFIG, fraction=0.5, rounds=6))
    asked = [order.client for order in federation.of_kind(PrepareOrder)]
    assert sorted(asked) == sorted(set(asked)) == sorted(state.releases)
    for position, order in enumerate(federation.asked):
        if isinstance(order, TrainOrder):
            assert order.client in [
                earlier.client for earlier in federation.asked[:position]
            ]
    never = set(CLIENTS) - {order.client for order in federation.of_kind(TrainOrder)}
    assert never.isdisjoint(asked)


def test_who_makes_no_release_stays_in_the_average_and_is_asked_again() -> None:
    federation = Scripted({"b": fails(PrepareOrder)})
    state = rounds_of(federation)
    assert [order.client for order in federation.of_kind(PrepareOrder)] == [
        *CLIENTS,
        "b",
    ]
    # it never showed to have it
    assert all(order.extractor for order in federation.of_kind(PrepareOrder))
    for result in state.history:
        assert set(result.client_metrics) == set(CLIENTS)
        assert result.client_metrics["b"].teacher_share is None
        assert [failure.client for failure in result.failures] == ["b"]
        assert result.failures[0].reason == "no score: out of order"
    assert "b" not in state.releases


def test_without_any_release_the_run_ends_and_says_so() -> None:
    with pytest.raises(QuorumError, match="and no scores"):
        rounds_of(Scripted(dict.fromkeys(CLIENTS, fails(PrepareOrder))))


# Quorum, spare clients, failures


@pytest.mark.parametrize(
    ("share", "wanted", "needed"),
    [(0.5, 4, 2), (0.5, 5, 3), (0.0, 4, 1), (1.0, 4, 4), (0.3, 10, 3)],
)
def test_quorum_is_a_share_of_those_wanted_and_at_least_one(
    share: float, wanted: int, needed: int
) -> None:
    assert (
        quorum(
            replace(CONFIG, federation=replace(CONFIG.federation, quorum=share)), wanted
        )
        == needed
    )


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_round_needs_its_quorum(failing: int) -> None:
    federation = Scripted(dict.fromkeys(CLIENTS[:failing], fails(TrainOrder, 2)))
    if failing > 2:
        with pytest.raises(
            QuorumError,
            match=r"round 2 has 1 contributions of 4.*asks for 2 \(a: out of order; b",
        ):
            rounds_of(federation, AVERAGE)
    else:
        last = rounds_of(federation, AVERAGE).history[-1]
        assert sorted(last.client_metrics) == list(CLIENTS[failing:])
        assert [failure.client for failure in last.failures] == list(CLIENTS[:failing])


def test_a_lost_round_keeps_the_accounts_and_the_rounds_before_it() -> None:
    """What it cost the clients is known when the run goes on: the next orders say
    so.
    """
    spent = {client: lambda order: priced(order, 2 + order.round) for client in CLIENTS}
    spent |= dict.fromkeys("abc", fails(TrainOrder, 2))
    saved: list[RunState] = []
    with pytest.raises(QuorumError):
        rounds_of(Scripted(spent), AVERAGE, save=saved.append)
    last = saved[-1]
    assert last.round == 1
    assert same_weights(last, saved[-2])
    assert last.accounts["d"] == Account(0.5, 1e-5, "replace-one", "record", 4)
    assert last.awaiting_reply == set("abc")
    federation = Scripted()
    after = rounds_of(federation, AVERAGE, state=last)
    known_entries = {
        order.client: order.known_entries for order in federation.of_kind(TrainOrder)
    }
    assert known_entries == {**dict.fromkeys("abc", 1), "d": 4}
    assert after.awaiting_reply == set()


def priced(order: Order, entries: int) -> Reply:
    reply = honest(order)
    return (
        replace(reply, account=account(entries)) if isinstance(reply, Update) else reply
    )


def test_spare_clients_are_asked_and_not_waited_for() -> None:
    policy = replace(CONFIG.federation, over_selection=1.0)
    config = replace(AVERAGE, fraction=0.5, rounds=1, federation=policy)
    assert sample(CLIENTS, config, 1) == (2, list(CLIENTS))
    federation = Scripted({"a": silent})
    state = rounds_of(federation, config)
    assert [order.client for order in federation.asked] == list(CLIENTS)
    assert federation.taken == ["b", "c"]
    # both were asked, and may have spent something
    assert state.awaiting_reply == {"a", "d"}
    assert sorted(state.history[0].client_metrics) == ["b", "c"]


def test_a_failure_costs_the_features_that_a_client_may_have_lost() -> None:
    config = replace(AVERAGE, head_only=True, rounds=3)
    federation = Scripted({"c": fails(TrainOrder, 2)})
    rounds_of(federation, config)
    orders = federation.of_kind(TrainOrder)
    sent = [
        {order.client for order in orders if order.round == number and order.extractor}
        for number in (1, 2, 3)
    ]
    assert sent == [set(CLIENTS), set(), {"c"}]


# Order of arrival


@pytest.mark.parametrize("method", ["fedaux", "fedbe"])
def test_the_order_of_arrival_decides_nothing(method: str) -> None:
    config = replace(CONFIG, method=method, prototypes=(MLP, WIDE))
    script = {"c": lambda order: odd(order)}
    known: list[RunState] = []
    for order in [*permutations(range(4))][::5]:

        def arrival(replies: list[Any], order: tuple[int, ...] = order) -> list[Any]:
            return [replies[i] for i in order if i < len(replies)]

        known.append(rounds_of(Scripted(script, arrival), config))
    assert [failure.client for failure in known[0].history[1].failures] == ["c"]
    for state in known[1:]:
        assert same_weights(state, known[0])
        for one, other in zip(state.history, known[0].history, strict=True):
            assert one.client_metrics == other.client_metrics
            assert set(one.failures) == set(other.failures)
            assert (one.distill_loss, one.effective_teachers) == (
                other.distill_loss,
                other.effective_teachers,
            )
            assert (one.update_norms, one.accuracy) == (
                other.update_norms,
                other.accuracy,
            )


def odd(order: Order) -> Reply:
    """In the second round it goes much further than others did."""
    reply = honest(order)
    if isinstance(order, TrainOrder) and isinstance(reply, Update) and order.round == 2:
        weights = {
            name: array + array.dtype.type(1000)
            for name, array in reply.weights.items()
        }
        return replace(reply, weights=weights)
    return reply


def test_a_stopped_run_goes_on_to_the_same_bits() -> None:
    whole = rounds_of(Scripted(), replace(CONFIG, rounds=3))
    first = rounds_of(Scripted(), replace(CONFIG, rounds=1))
    rest = rounds_of(
        Scripted(),
        replace(CONFIG, rounds=3),
        state=replace(first, config=replace(CONFIG, rounds=3)),
    )
    assert same_weights(whole, rest)


def test_a_reply_that_makes_no_sense_is_reported_as_a_failure() -> None:
    events: list[ProgressEvent] = []
    server = make_server(replace(CONFIG, rounds=2))
    with report_to(events.append):
        run(server, Scripted({"a": odd}), None, lambda state: None)
    refused = [event for event in events if isinstance(event, ReplyReceived)]
    assert [
        (event.round, event.client, event.done, event.total) for event in refused
    ] == [(2, "a", 0, 0)]
    assert refused[0].failure is not None
    assert "the limit" in refused[0].failure.reason
    assert isinstance(events[-1], WorkProgress)
    assert events[-1].phase == "distil"
