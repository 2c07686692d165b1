"""The loop: P1 once, then P2-P3 for whoever is new and T1-T3 each round, over any federation that answers orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fedaux.errors import FedauxError
from fedaux.exchange import Failure, Federation, PrepareOrder, Release, Update
from fedaux.gathering import Gathering
from fedaux.seeds import numpy_stream
from fedaux.server import Server
from fedaux.state import RunState


class NoAnswerError(FedauxError, RuntimeError):
    """A round without a single contribution; the state before it is saved, and the run can be resumed."""


def run(server: Server, federation: Federation, state: RunState | None, save: Callable[[RunState], None]) -> RunState:
    """Start, or go on from `state`; `save` is called after preparation and after every round."""
    if state is None:
        state = server.initial_state()  # P1
        save(state)
    server.take_up(state)
    certainty = server.certainty(state) if server.method.scores else None
    while state.round < server.config.rounds:
        chosen = sample(federation.clients, server.config.participation, server.config.seed, state.round + 1)
        failures: list[Failure] = []
        if certainty:
            state, failures = collect_releases(server, federation, state, chosen)  # P2, P3
            if server.config.start == "closed-form" and state.round == 0:
                state = server.closed_form(state, certainty)
            save(state)
        gathering = Gathering.start(server, certainty, state, chosen)
        for reply in federation.ask([server.train_order(state, client) for client in chosen]):  # T1
            if isinstance(reply, Update):
                gathering.add(reply)  # T2
            elif isinstance(reply, Failure):
                gathering.failures.append(reply)
            done = len(gathering.losses) + len(gathering.failures)
            server.tell(f"round {state.round + 1}", done, len(chosen), "training")
        gathering.failures += failures
        if not gathering.losses or (gathering.weighing and not gathering.weighing.teachers):
            raise NoAnswerError(f"no client could take part in round {state.round + 1}: {gathering.failures[0].reason}")
        state = gathering.finish(state)  # T2, T3
        save(state)
    return state


def collect_releases(
    server: Server, federation: Federation, state: RunState, clients: Sequence[str]
) -> tuple[RunState, list[Failure]]:
    """Ask those who are here for the first time. One that fails keeps its place in the average, not in the ensemble.

    Clients are asked when they are first chosen, not before: who never takes part spends no privacy.
    """
    missing = [client for client in clients if client not in state.releases]
    found, failures = {}, []
    orders = [server.prepare_order(state, client) for client in missing]
    sent = sent_in_words(orders)
    for reply in federation.ask(orders):
        if isinstance(reply, Release):
            found[reply.client] = reply
        elif isinstance(reply, Failure):
            failures.append(Failure(reply.client, f"no score: {reply.reason}"))
        server.tell("score", len(found) + len(failures), len(missing), f"{len(found)} releases, {sent}")
    return state.with_releases(found), failures


def sent_in_words(orders: Sequence[PrepareOrder]) -> str:
    """What crosses to each new client: h0, unless it has it, and what the scorer published of D⁻."""
    if not orders:
        return "nobody new"
    extractor, public = (
        max(sum(array.nbytes for array in getattr(order, room).values()) for order in orders) / 1e6
        for room in ("extractor", "public")
    )
    first = f"extractor {extractor:.2f} MB" if extractor else "extractor not sent: clients have it"
    return f"{first}, public map {public:.2f} MB"


def sample(clients: Sequence[str], participation: float, seed: int, round_: int) -> list[str]:
    """⌈C·n⌉ clients without replacement, from the round's own stream."""
    count = max(1, math.ceil(participation * len(clients) - 1e-9))
    rng = numpy_stream(seed, "sampling", round_)
    return [clients[i] for i in sorted(rng.choice(len(clients), size=count, replace=False))]
