"""The loop: P1 once, then P2-P3 for whoever is new and T1-T3 each round, over any federation that answers orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.messages import Account, Failure, Federation, Subtotal, Update
from fedaux.core.progress import ReplyReceived, WorkProgress
from fedaux.core.rng import numpy_stream
from fedaux.core.timing import Costs
from fedaux.scoring.teacher_weights import PublicEmbedding
from fedaux.server.analytic_round import collect_sums, compute_heads, finish_round
from fedaux.server.releases import collect_releases
from fedaux.server.round import Round
from fedaux.server.run_state import RunState
from fedaux.server.server import Server
from fedaux.server.start import initial_state
from fedaux.server.subtotals import merge_subtotal


class NoAnswerError(FedauxError, RuntimeError):
    """A round without a single contribution; the state before it is saved, and the run can be resumed."""

    code = Exit.CLIENTS


def run(
    server: Server,
    federation: Federation,
    state: RunState | None,
    save: Callable[[RunState], None],
    until: int | None = None,
) -> RunState:
    """Start, or go on from `state`; `save` is called after preparation and after every round.

    `until` stops after an earlier round than the last, as an interruption would.
    """
    costs = Costs()
    with costs.phase("prepare"):
        if state is None:
            state = initial_state(server)  # P1
            save(state)
        embedding = server.restore(state)
    last = server.config.rounds if until is None else min(until, server.config.rounds)
    while state.round < last:
        wanted, chosen = sample(server.clients, server.config, state.round + 1)
        before = state
        state, failures = prepare(server, federation, state, chosen, embedding, costs)  # P2, P3
        if state is not before:
            save(state)
        state = replace(state, selected=tuple(chosen))
        if server.method.analytic:
            check_prepared(server, state, chosen, failures, wanted)
            state, costs = finish_round(server, state, chosen, failures, costs), Costs()
            save(state)
            continue
        current = Round.start(server, embedding, state, chosen, costs)
        accounts = train(server, federation, state, current, wanted, chosen)  # T1, T2
        current.failures += failures
        state = state.with_accounts(chosen, accounts)
        try:
            check_quorum(current, server.config, wanted)
        except NoAnswerError:
            save(state)  # the round is lost; what it cost the clients is not
            raise
        server.on_progress(WorkProgress(f"round {current.number}", 0, 0, "averaging and distilling", "distil"))
        state, costs = current.finish(state), Costs()  # T2, T3
        save(state)
    return state


def prepare(
    server: Server,
    federation: Federation,
    state: RunState,
    chosen: Sequence[str],
    embedding: PublicEmbedding | None,
    costs: Costs,
) -> tuple[RunState, list[Failure]]:
    """Releases (P2, P3) and sums of those chosen that are new, and a head from all that have been heard.

    Before round 1 all clients are asked where `prepare` says so. A head that training starts from is computed once.
    """
    config, first = server.config, state.round == 0
    head = config.analytic_head if first or server.method.analytic else None
    asked = server.clients if first and config.prepare == "all" else chosen
    before, failures = replace(state, selected=tuple(asked)), list[Failure]()
    prepared = before
    with costs.phase("score"):
        if config.releases:
            prepared, failures = collect_releases(server, federation, before, asked, costs)
        if head is not None and head.sums:
            prepared, failed = collect_sums(server, federation, prepared, asked, costs)
            failures = [*failures, *failed]
        if prepared is before:
            return state, failures
        return prepared if head is None else compute_heads(server, prepared, embedding), failures


def check_prepared(
    server: Server, state: RunState, chosen: Sequence[str], failures: Sequence[Failure], wanted: int
) -> None:
    """A round of a head that is computed: of the clients chosen, enough must be in it."""
    counted = sum(client in state.summed or client in state.releases for client in chosen)
    if counted < quorum(server.config, wanted):
        raise NoAnswerError(_no_quorum(state.round + 1, counted, server.config, wanted, failures))


def train(
    server: Server, federation: Federation, state: RunState, current: Round, wanted: int, chosen: Sequence[str]
) -> dict[str, Account]:
    """T1 at those chosen, until as many as are wanted have contributed; the accounts of all that answered."""
    accounts = {}
    with current.costs.phase("train"):
        orders = [server.orders.train(state, client, current.teacher_weights) for client in chosen]
        for reply in federation.ask(current.costs.count_sent(orders)):
            if isinstance(reply, Update):
                accounts[reply.client] = Account.from_json(reply.account)
                if failure := current.add(reply):  # T2
                    server.on_progress(ReplyReceived("train", current.number, reply.client, 0, failure=failure))
            elif isinstance(reply, Subtotal):
                accounts |= merge_subtotal(current, reply)  # T2, of many clients at once
            elif isinstance(reply, Failure):
                current.failures.append(reply)
            if len(current.client_metrics) >= wanted:
                break  # those asked as a spare are not waited for
    return accounts


def quorum(config: Config, wanted: int) -> int:
    """How many of the clients wanted are enough."""
    return max(1, math.ceil(config.federation.quorum * wanted - 1e-9))


def check_quorum(current: Round, config: Config, wanted: int) -> None:
    """Too few contributions, or none that may teach, end the run before anything of the round is kept."""
    contributed = len(current.client_metrics)
    unscored = current.teacher_weights is not None and not current.teacher_weights.teachers
    if contributed < quorum(config, wanted) or unscored:
        raise NoAnswerError(_no_quorum(current.number, contributed, config, wanted, current.failures, unscored))


def _no_quorum(
    number: int, contributed: int, config: Config, wanted: int, failures: Sequence[Failure], unscored: bool = False
) -> str:
    reasons = "; ".join(f"{failure.client}: {failure.reason}" for failure in failures[:3])
    return (
        f"round {number} has {contributed} contributions of {wanted}, and federation.quorum = "
        f"{config.federation.quorum:g} asks for {quorum(config, wanted)}"
        + (", and no scores" if unscored else "")
        + f" ({reasons}). The rounds before it are saved: mend the clients and start the run again to go on."
    )


def sample(clients: Sequence[str], config: Config, round_: int) -> tuple[int, list[str]]:
    """(⌈C·n⌉, so many clients and the spare ones), without replacement, from the round's own stream."""
    wanted = max(1, math.ceil(config.fraction * len(clients) - 1e-9))
    count = min(len(clients), math.ceil(wanted * (1 + config.federation.over_selection) - 1e-9))
    rng = numpy_stream(config.seed, "sampling", round_)
    return wanted, [clients[i] for i in sorted(rng.choice(len(clients), size=count, replace=False))]
