"""The loop: P1 once, then P2-P3 for whoever is new and T1-T3 each round, over any federation that answers orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedaux.algorithms.round import Gathering
from fedaux.algorithms.run_state import RunState
from fedaux.algorithms.server import Server
from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.messages import Account, Arrays, Failure, Federation, Release, Update
from fedaux.core.progress import AggregationStarted, ReleasesProgress, TrainingProgress
from fedaux.core.rng import numpy_stream
from fedaux.core.timing import Costs, payload_bytes


class NoAnswerError(FedauxError, RuntimeError):
    """A round without a single contribution; the state before it is saved, and the run can be resumed."""

    code = Exit.CLIENTS


def run(server: Server, federation: Federation, state: RunState | None, save: Callable[[RunState], None]) -> RunState:
    """Start, or go on from `state`; `save` is called after preparation and after every round."""
    costs = Costs()
    with costs.phase("prepare"):
        if state is None:
            state = server.initial_state()  # P1
            save(state)
        server.take_up(state)
        certainty = server.certainty(state) if server.method.scores else None
    while state.round < server.config.rounds:
        wanted, chosen = sample(server.clients, server.config, state.round + 1)
        failures: list[Failure] = []
        if certainty:
            with costs.phase("score"):
                state, failures = collect_releases(server, federation, state, chosen, costs)  # P2, P3
                if server.config.head_init == "closed-form" and state.round == 0:
                    state = server.closed_form(state, certainty)
                save(state)
        gathering = Gathering.start(server, certainty, state, chosen, costs)
        with costs.phase("train"):
            orders = costs.count_sent([server.train_order(state, client) for client in chosen])
            for reply in federation.ask(orders):  # T1
                if isinstance(reply, Update):
                    gathering.add(reply)  # T2
                elif isinstance(reply, Failure):
                    gathering.failures.append(reply)
                counted, failed = len(gathering.client_metrics), len(gathering.failures)
                server.on_progress(TrainingProgress(state.round + 1, counted + failed, len(chosen), failed))
                if counted >= wanted:
                    break  # those asked as a spare are not waited for
        gathering.failures += failures
        state = state.with_accounts(chosen, gathering.accounts)
        try:
            check_quorum(gathering, server.config, wanted, state.round + 1)
        except NoAnswerError:
            save(state)  # the round is lost; what it cost the clients is not
            raise
        server.on_progress(AggregationStarted(state.round + 1))
        state, costs = gathering.finish(state), Costs()  # T2, T3
        save(state)
    return state


def collect_releases(
    server: Server, federation: Federation, state: RunState, clients: Sequence[str], costs: Costs
) -> tuple[RunState, list[Failure]]:
    """Ask those who are here for the first time. One that fails keeps its place in the average, not in the ensemble.

    Clients are asked when they are first chosen, not before: who never takes part spends no privacy.
    """
    missing = [client for client in clients if client not in state.releases]
    found, failures = {}, []
    orders = [server.prepare_order(state, client) for client in missing]
    extractor = max((_bytes(order.extractor) for order in orders), default=0)
    public = max((_bytes(order.public) for order in orders), default=0)
    for reply in federation.ask(costs.count_sent(orders)):
        costs.received += payload_bytes(reply)
        if isinstance(reply, Release):
            found[reply.client] = reply
        elif isinstance(reply, Failure):
            failures.append(Failure(reply.client, f"no score: {reply.reason}"))
        done = len(found) + len(failures)
        server.on_progress(ReleasesProgress(state.round + 1, done, len(missing), len(failures), extractor, public))
    accounts = {client: Account.from_json(one.account) for client, one in found.items()}
    return state.with_releases(found).with_accounts(missing, accounts), failures


def _bytes(arrays: Arrays) -> int:
    return sum(int(array.nbytes) for array in arrays.values())


def quorum(config: Config, wanted: int) -> int:
    """How many of the clients wanted are enough."""
    return max(1, math.ceil(config.federation.quorum * wanted - 1e-9))


def check_quorum(gathering: Gathering, config: Config, wanted: int, round_: int) -> None:
    """Too few contributions, or none that may teach, end the run before anything of the round is kept."""
    needed, got = quorum(config, wanted), len(gathering.client_metrics)
    mute = gathering.weighing is not None and not gathering.weighing.teachers
    if got < needed or mute:
        reasons = "; ".join(f"{one.client}: {one.reason}" for one in gathering.failures[:3])
        raise NoAnswerError(
            f"round {round_} has {got} contributions of {wanted}, and federation.quorum = {config.federation.quorum:g} "
            f"asks for {needed}"
            + (", and no scores" if mute else "")
            + f" ({reasons}). The rounds before it are saved: "
            "mend the clients and start the run again to go on."
        )


def sample(clients: Sequence[str], config: Config, round_: int) -> tuple[int, list[str]]:
    """(⌈C·n⌉, so many clients and the spare ones), without replacement, from the round's own stream."""
    wanted = max(1, math.ceil(config.fraction * len(clients) - 1e-9))
    count = min(len(clients), math.ceil(wanted * (1 + config.federation.over_selection) - 1e-9))
    rng = numpy_stream(config.seed, "sampling", round_)
    return wanted, [clients[i] for i in sorted(rng.choice(len(clients), size=count, replace=False))]
