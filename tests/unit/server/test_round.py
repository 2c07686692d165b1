"""What one round learns of how far honest clients move, the next ones hold against
everybody.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedaux.config.distillation import TeachersConfig
from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.failures import Failure
from fedaux.core.results import RoundResult
from fedaux.core.timing import Costs
from fedaux.messages import Order, Reply, Subtotal, TrainOrder, Update
from fedaux.server.loop import run as run_rounds
from fedaux.server.preparation import initial_state
from fedaux.server.regions import subtotal_of, subtotal_row
from fedaux.server.round import Round
from fedaux.server.run_state import RunState
from fedaux.server.traffic import CountedFederation
from fedaux.server.update_norms import NORM_LIMIT, norm_limits, update_norm
from helpers import scripted
from helpers.scripted import CLIENTS, CONFIG, MLP, Answer, Scripted, honest, make_server

AVERAGE = replace(CONFIG, method="fedavg")


def bold(factor: float, since: int = 1) -> Answer:
    """Honest, but from some round on a client goes further than it was trained to."""

    def answer(order: Order) -> Reply:
        reply = honest(order)
        if (
            not isinstance(order, TrainOrder)
            or not isinstance(reply, Update)
            or order.round < since
        ):
            return reply
        there = {
            name: (start + factor * (reply.weights[name] - start)).astype(start.dtype)
            if start.dtype.kind == "f"
            else start
            for name, start in order.weights.items()
        }
        return replace(reply, weights=there)

    return answer


def after(answer: Answer, config: Config = AVERAGE, **script: Any) -> RunState:
    """After a run in which client b answers so."""
    return run_rounds(
        make_server(config), Scripted({"b": answer}, **script), None, lambda state: None
    )


def test_an_update_that_goes_much_further_than_others_did_is_refused_and_said_so() -> (
    None
):
    first, second = after(bold(1.5 * NORM_LIMIT, since=2)).history
    assert first.failures == ()
    (failure,) = second.failures
    assert failure.client == "b"
    assert "its parameters move by" in failure.reason
    assert (
        f"{NORM_LIMIT * first.update_norms[MLP.label]['parameters']:.3g} the limit"
        in failure.reason
    )
    assert len(second.client_metrics) == 3


def test_the_first_round_knows_no_limit_and_its_median_is_not_moved_by_one_client() -> (
    None
):
    moved, honestly = after(bold(3 * NORM_LIMIT)).history, after(bold(1.0)).history
    assert moved[0].failures == ()
    norms = [
        history[0].update_norms[MLP.label]["parameters"]
        for history in (moved, honestly)
    ]
    assert norms[0] < 1.5 * norms[1]
    assert [failure.client for failure in moved[1].failures] == ["b"]


def test_what_is_not_a_number_is_refused_before_it_is_measured() -> None:
    result = after(bold(float("nan"), since=2)).history[1]
    (failure,) = result.failures
    assert "its parameters are not finite" in failure.reason
    # the server has seen all four models
    assert (len(result.client_metrics), result.unprotected_models) == (3, 4)


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_the_loudest_teacher_is_told(share: float) -> None:
    config = replace(CONFIG, rounds=1, teachers=TeachersConfig(max_share=share))
    state, server = after(honest, config), make_server(config)
    assert state.history[0].largest_teacher is not None
    client, told = state.history[0].largest_teacher
    embedding = server.restore(state)
    assert embedding is not None
    found = embedding.teacher_weights(state.releases, server.clients)
    weights = np.stack([found.of(client) for client in server.clients])
    shares = weights / weights.sum(axis=0)
    assert shares.max() <= share + 1e-9
    assert client == server.clients[int(shares.mean(axis=1).argmax())]
    assert told == pytest.approx(shares.mean(axis=1).max())


def started(method: str = "fedaux", releases: str = "abcd") -> tuple[Round, RunState]:
    """The first round of a scripted federation, in which some clients have made a
    release.
    """
    server = scripted.make_server(replace(scripted.CONFIG, method=method))
    state = initial_state(server)
    if server.method.scores:
        state = state.with_releases(
            {
                name: scripted.release(server.orders.prepare(state, name))
                for name in releases
            }
        )
    return Round.start(
        server, server.restore(state), state, scripted.CLIENTS, Costs()
    ), state


@pytest.mark.parametrize(
    ("teachers", "distils"), [("abcd", True), ("ab", True), ("a", False)]
)
def test_a_few_teachers_do_not_pull_the_students_to_themselves(
    teachers: str, distils: bool
) -> None:
    current, state = started(releases=teachers)
    plain, _ = started("fedavg")
    for client in scripted.CLIENTS:
        update = scripted.update(current.server.orders.train(state, client))
        current.add(update)
        plain.add(update)
    assert (current.total.clients, current.total.teachers) == (4, len(teachers))
    after, average = current.finish(state), plain.finish(state)
    (result,), (label,) = after.history, state.weights
    assert (
        (result.distill_loss is not None)
        == (result.effective_teachers is not None)
        == distils
    )
    same = np.array_equal(
        after.weights[label]["parameters"], average.weights[label]["parameters"]
    )
    assert same != distils


@pytest.mark.parametrize("spoil", [np.nan, np.inf, 1e30], ids=str)
def test_an_update_that_makes_no_sense_changes_nothing_but_the_failures(
    spoil: float,
) -> None:
    current, state = started()
    untouched, _ = started()
    for client in scripted.CLIENTS:
        update = scripted.update(current.server.orders.train(state, client))
        if client == "b":
            update.weights["parameters"][3] = spoil
        else:
            untouched.add(update)
        current.add(update)
    assert [failure.client for failure in current.failures] == ["b"]
    one, other = current.finish(state), untouched.finish(state)
    assert one.history[0].client_metrics == other.history[0].client_metrics
    for label, arrays in one.weights.items():
        assert all(
            np.array_equal(array, other.weights[label][name])
            for name, array in arrays.items()
        )


def test_reasons_that_clients_write_are_kept_short() -> None:
    talkative = after(
        lambda order: Failure(order.client, "no " * 10**6), replace(AVERAGE, rounds=1)
    )
    (failure,) = talkative.history[0].failures
    assert failure.client == "b"
    assert len(failure.reason) == 500


def test_limits_come_from_the_largest_median_of_each_prototype() -> None:
    history = [
        RoundResult(1, {}, {}, update_norms={"a": {"parameters": 1.0, "buffers": 7.0}}),
        RoundResult(
            2,
            {},
            {},
            update_norms={
                "a": {"parameters": 2.0, "buffers": 3.0},
                "b": {"parameters": 0.0},
            },
        ),
    ]
    assert norm_limits(history) == {
        "a": {"parameters": 2 * NORM_LIMIT, "buffers": 7 * NORM_LIMIT},
        "b": {},
    }
    assert norm_limits([]) == {}


def test_update_norm_is_the_distance_by_the_root_of_the_steps() -> None:
    sent = {
        "parameters": np.zeros(2, np.float32),
        "buffers": np.ones(1, np.float32),
        "counters": np.array([3]),
    }
    got = {
        "parameters": np.array([3, 4], np.float32),
        "buffers": np.ones(1, np.float32),
        "counters": np.array([99]),
    }
    assert update_norm(sent, got, 4) == {"parameters": 2.5, "buffers": 0.0}


ACCOUNT = Account(0.5, 1e-5, "replace-one", "record", 1)


def added(server_clients: str) -> Round:
    """A round to which these clients' updates were added; the last one's training was
    private.
    """
    server = make_server()
    state = initial_state(server)
    current = Round.start(server, None, state, CLIENTS, Costs())
    for client in server_clients:
        order = server.orders.train(state, client)
        (reply,) = CountedFederation(Scripted(), current.costs).ask([order])
        assert isinstance(reply, Update)
        private = client == server_clients[-1]
        current.add(
            reply
            if not private
            else Update(**{**vars(reply), "noise": 1.5, "rate": 0.5, "steps": 3})
        )
    return current


@dataclass
class Sent:
    """A region's answer, whatever is asked."""

    subtotal: Subtotal

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        yield self.subtotal


def test_two_subtotals_are_the_round_of_all() -> None:
    whole, merged = added("abcd"), added("")
    for part in ("ab", "cd"):
        current = added(part)
        current.failures.append(Failure(part, "gone"))
        subtotal = current.subtotal(dict.fromkeys(part, ACCOUNT))
        row = json.loads(json.dumps(subtotal_row(subtotal)))
        sent = Sent(subtotal_of(row, subtotal.contribution))
        (reply,) = CountedFederation(sent, merged.costs).ask([])
        assert isinstance(reply, Subtotal)
        assert reply.accounts == dict.fromkeys(part, ACCOUNT)
        merged.merge(reply)
    assert merged.client_metrics == whole.client_metrics
    assert merged.norms == whole.norms
    assert merged.costs.received == whole.costs.received > 0
    assert (merged.unprotected, sorted(merged.private_training)) == (2, ["b", "d"])
    assert (whole.unprotected, sorted(whole.private_training)) == (3, ["d"])
    assert [failure.client for failure in merged.failures] == ["ab", "cd"]
    assert (
        (merged.total.clients, merged.total.teachers)
        == (whole.total.clients, whole.total.teachers)
        == (4, 4)
    )
    (mine, _), (theirs, _) = merged.total.finish(), whole.total.finish()
    assert mine[MLP.label].keys() == theirs[MLP.label].keys()
    assert all(
        np.array_equal(array, theirs[MLP.label][name])
        for name, array in mine[MLP.label].items()
    )
