"""The loop: P1 once, then P2-P3 for new clients and T1-T3 each round, over any
federation that answers orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.failures import Failure
from fedaux.core.progress import ReplyReceived, report
from fedaux.core.rng import numpy_stream
from fedaux.core.timing import Costs
from fedaux.messages import Federation, Subtotal, Update
from fedaux.server.agreement import agree_on_plan, show_to_others
from fedaux.server.analytic_round import finish_round
from fedaux.server.preparation import initial_state, prepare_clients
from fedaux.server.round import Round
from fedaux.server.run_state import RunState
from fedaux.server.secure_sum import SecureSums
from fedaux.server.server import Server
from fedaux.server.site_test import is_test_due, look_at_sites
from fedaux.server.traffic import CountedFederation

Save = Callable[[RunState], None]


class QuorumError(FedauxError, RuntimeError):
    """A round has too few contributions. The state before it is saved, and the run can
    be resumed.
    """

    code = Exit.CLIENTS


def run(
    server: Server,
    federation: Federation,
    state: RunState | None,
    save: Save,
    until: int | None = None,
) -> RunState:
    """Run all rounds, or continue from `state`. `save` is called after preparation and
    after every round.

    `until` stops the run after an earlier round than the last, as an interruption
    would.
    """
    costs = Costs()
    with costs.phase("prepare"):
        if state is None:
            state = initial_state(server)  # P1
            save(state)
        embedding = server.restore(state)
    agree_on_plan(server, federation, state)
    last = server.config.rounds if until is None else min(until, server.config.rounds)
    while state.round < last:
        wanted, chosen = sample(server.clients, server.config, state.round + 1)
        show_to_others(server, federation, chosen)
        clients = answering(server, federation, state, costs)
        before = state
        # P2, P3
        state, failures = prepare_clients(
            server, clients, state, chosen, embedding, costs
        )
        if state is not before:
            save(state)
        state = replace(state, selected=tuple(chosen))
        if server.method.analytic:
            check_prepared(server, state, wanted, failures)
            state = finish_round(server, state, failures, costs)
        else:
            current = Round.start(server, embedding, state, chosen, costs)
            accounts = collect_updates(
                server, clients, state, current, wanted, chosen
            )  # T1, T2
            current.failures += failures
            state = state.with_accounts(chosen, accounts)
            try:
                check_trained(server, current, wanted)
            except QuorumError:
                save(state)  # the round is lost; what it cost the clients is not
                raise
            state = current.finish(state)  # T3
        save(state)
        costs = Costs()
    if is_test_due(server.config, state):
        sites = answering(server, federation, state, costs)
        state = look_at_sites(server, sites, state)
        save(state)
    return state


def answering(
    server: Server, federation: Federation, state: RunState, costs: Costs
) -> Federation:
    """Return what answers the orders of a round: the clients, or secure sums over
    them. All bytes are added to `costs`.
    """
    counted = CountedFederation(federation, costs)
    if server.config.federation.secure:
        return SecureSums(server, counted, server.orders.run_id(state))
    return counted


def collect_updates(
    server: Server,
    federation: Federation,
    state: RunState,
    current: Round,
    wanted: int,
    chosen: Sequence[str],
) -> dict[str, Account]:
    """Let the chosen clients train (T1) until enough have contributed; return the
    accounts of all that answered.
    """
    accounts: dict[str, Account] = {}
    weights = current.teachers.weights
    with current.costs.phase("train"):
        orders = [server.orders.train(state, client, weights) for client in chosen]
        for reply in federation.ask(orders):
            if isinstance(reply, Update):
                accounts[reply.client] = Account.from_json(reply.account)
                failure = current.add(reply)  # T2
                if failure is not None:
                    report_refusal(current, failure)
            elif isinstance(reply, Subtotal):
                current.merge(reply)  # T2, of many clients at once
                accounts |= reply.accounts
            elif isinstance(reply, Failure):
                current.failures.append(reply)
            if len(current.client_metrics) >= wanted:
                break  # spare clients are not waited for
    return accounts


def report_refusal(current: Round, failure: Failure) -> None:
    """Report an update that was counted as a reply, and then refused."""
    report(ReplyReceived("train", current.number, failure.client, 0, failure=failure))


def check_prepared(
    server: Server, state: RunState, wanted: int, failures: Sequence[Failure]
) -> None:
    """Raise an error if too few of the round's clients have sent what a head is
    computed from.
    """
    records = state.records
    prepared = [client for client in state.selected if client in records]
    check_quorum(server.config, state.round + 1, len(prepared), wanted, failures)


def check_trained(server: Server, current: Round, wanted: int) -> None:
    """Raise an error if too few clients have contributed, or none of them may teach."""
    weights = current.teachers.weights
    unscored = weights is not None and not weights.teachers
    contributed = len(current.client_metrics)
    check_quorum(
        server.config, current.number, contributed, wanted, current.failures, unscored
    )


def quorum(config: Config, wanted: int) -> int:
    """Return how many of the wanted clients must contribute to a round."""
    return max(1, math.ceil(config.federation.quorum * wanted - 1e-9))


def check_quorum(
    config: Config,
    number: int,
    contributed: int,
    wanted: int,
    failures: Sequence[Failure],
    unscored: bool = False,
) -> None:
    """Raise an error, before anything of the round is kept, if too few clients
    contributed or none may teach.
    """
    needed = quorum(config, wanted)
    if contributed >= needed and not unscored:
        return
    reasons = "; ".join(
        f"{failure.client}: {failure.reason}" for failure in failures[:3]
    )
    no_scores = ", and no scores" if unscored else ""
    raise QuorumError(
        f"Cannot continue: round {number} has {contributed} contributions of {wanted}, "
        f"and federation.quorum = {config.federation.quorum:g} asks for "
        f"{needed}{no_scores} ({reasons}). The rounds before it are saved. Fix the "
        "clients and start the run again to continue."
    )


def sample(
    clients: Sequence[str], config: Config, round_: int
) -> tuple[int, list[str]]:
    """Draw ⌈C·n⌉ clients and the spare ones without replacement, from the round's own
    stream; (⌈C·n⌉, clients).
    """
    wanted = max(1, math.ceil(config.fraction * len(clients) - 1e-9))
    with_spare = wanted * (1 + config.federation.over_selection)
    count = min(len(clients), math.ceil(with_spare - 1e-9))
    rng = numpy_stream(config.seed, "sampling", round_)
    drawn = rng.choice(len(clients), size=count, replace=False)
    return wanted, [clients[index] for index in sorted(drawn)]
