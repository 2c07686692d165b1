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
from fedaux.core.progress import ReplyReceived, WorkProgress
from fedaux.core.rng import numpy_stream
from fedaux.core.timing import Costs
from fedaux.messages import Federation, Subtotal, TrainOrder, Update
from fedaux.methods.summed_update import update_shapes, vector_length
from fedaux.server.agreement import agree_on_plan, show_to_others
from fedaux.server.analytic_round import finish_round
from fedaux.server.preparation import by_prototype, initial_state, prepare
from fedaux.server.round import Round
from fedaux.server.run_state import RunState
from fedaux.server.secure_sum import secure_total
from fedaux.server.server import Server


class QuorumError(FedauxError, RuntimeError):
    """A round has too few contributions; the state before it is saved, and the run can
    be resumed.
    """

    code = Exit.CLIENTS


def run(
    server: Server,
    federation: Federation,
    state: RunState | None,
    save: Callable[[RunState], None],
    until: int | None = None,
) -> RunState:
    """Run all rounds, or continue from `state`; `save` is called after preparation and
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
        before = state
        show_to_others(server, federation, chosen)
        # P2, P3
        state, failures = prepare(server, federation, state, chosen, embedding, costs)
        if state is not before:
            save(state)
        state = replace(state, selected=tuple(chosen))
        if server.method.analytic:
            prepared = sum(client in state.records for client in chosen)
            check_quorum(server.config, state.round + 1, prepared, wanted, failures)
            state, costs = finish_round(server, state, chosen, failures, costs), Costs()
            save(state)
            continue
        current = Round.start(server, embedding, state, chosen, costs)
        accounts = train(server, federation, state, current, wanted, chosen)  # T1, T2
        current.failures += failures
        state = state.with_accounts(chosen, accounts)
        contributed, scored = len(current.client_metrics), current.teacher_weights
        unscored = scored is not None and not scored.teachers
        try:
            check_quorum(
                server.config,
                current.number,
                contributed,
                wanted,
                current.failures,
                unscored,
            )
        except QuorumError:
            save(state)  # the round is lost; what it cost the clients is not
            raise
        server.on_progress(
            WorkProgress(
                f"round {current.number}", 0, 0, "averaging and distilling", "distil"
            )
        )
        state, costs = current.finish(state), Costs()  # T2, T3
        save(state)
    return state


def train(
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
    accounts = {}
    with current.costs.phase("train"):
        orders = [
            server.orders.train(state, client, current.teacher_weights)
            for client in chosen
        ]
        if server.config.federation.secure:
            return train_securely(server, federation, state, current, orders)
        for reply in federation.ask(current.costs.count_sent(orders)):
            if isinstance(reply, Update):
                accounts[reply.client] = Account.from_json(reply.account)
                if failure := current.add(reply):  # T2
                    server.on_progress(
                        ReplyReceived(
                            "train", current.number, reply.client, 0, failure=failure
                        )
                    )
            elif isinstance(reply, Subtotal):
                accounts |= current.merge(reply)  # T2, of many clients at once
            elif isinstance(reply, Failure):
                current.failures.append(reply)
            if len(current.client_metrics) >= wanted:
                break  # spare clients are not waited for
    return accounts


def train_securely(
    server: Server,
    federation: Federation,
    state: RunState,
    current: Round,
    orders: Sequence[TrainOrder],
) -> dict[str, Account]:
    """Add the secure sum of each prototype's updates (T1, T2); return the accounts of
    all that took part.
    """
    accounts: dict[str, Account] = {}
    for label, group in by_prototype(server, orders).items():
        length = vector_length(update_shapes(group[0], server.hooks))
        total, failures = secure_total(
            server, state, federation, group, length, current.costs
        )
        current.failures += failures
        if total is not None:
            current.add_sum(label, total, group[0])
            accounts |= total.accounts
    return accounts


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
    raise QuorumError(
        f"round {number} has {contributed} contributions of {wanted}, and "
        f"federation.quorum = {config.federation.quorum:g} asks for "
        f"{needed}{', and no scores' if unscored else ''} ({reasons}). The rounds "
        "before it are saved: mend the clients and start the run again to go on."
    )


def sample(
    clients: Sequence[str], config: Config, round_: int
) -> tuple[int, list[str]]:
    """Draw ⌈C·n⌉ clients and the spare ones without replacement, from the round's own
    stream; (⌈C·n⌉, clients).
    """
    wanted = max(1, math.ceil(config.fraction * len(clients) - 1e-9))
    count = min(
        len(clients), math.ceil(wanted * (1 + config.federation.over_selection) - 1e-9)
    )
    rng = numpy_stream(config.seed, "sampling", round_)
    return wanted, [
        clients[i] for i in sorted(rng.choice(len(clients), size=count, replace=False))
    ]
