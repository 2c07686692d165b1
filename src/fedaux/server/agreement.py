"""Before the first order of a run: every site is shown the plan, and the server waits
for its owners to approve it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from fedaux.config.methods import find_method
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.failures import Failure
from fedaux.core.progress import Notice, OwnersAwaited, report
from fedaux.data.tables import schema_of
from fedaux.messages import (
    Consent,
    DataOrder,
    Federation,
    PlanOrder,
    RunPlan,
    Tallies,
    plan_of,
)
from fedaux.privacy.secure_sum import agreed_threshold
from fedaux.server.orders import Agreement
from fedaux.server.run_state import RunState
from fedaux.server.server import Server
from fedaux.server.site_test import tallies_of_test

POLL_INTERVAL = 2.0  # seconds between two questions to the same site


class ConsentError(FedauxError, RuntimeError):
    """Too few sites take part in the run as it is planned. Nothing was asked of their
    records, and nothing spent.
    """

    code = Exit.CLIENTS


def agree_on_plan(
    server: Server,
    federation: Federation,
    state: RunState,
    clients: Sequence[str] | None = None,
    tallies: Tallies | None = None,
) -> None:
    """Show the plan of the run to all real sites, and wait until enough owners have
    approved it.

    Args:
        server: The server.
        federation: The sites.
        state: The state before the first order.
        clients: The sites to ask. None means all.
        tallies: Of a look at their data, which is all that is planned then.
    """
    settings = server.config.federation
    if not settings.sites:  # clients are simulated, and have no owners
        return
    plan = make_plan(server, state, tallies)
    agreement = server.orders.agreement
    agreement.plan = plan.hash
    agreement.text = plan.to_json()
    names = list(server.clients if clients is None else clients)
    reasons: dict[str, str] = {}
    approved: set[str] = set()
    waiting = names
    end = time.monotonic() + settings.connect_timeout
    announced: list[str] = []
    while True:
        decisions = ask_for_consent(federation, agreement, waiting, reasons)
        approved |= {
            name for name, decision in decisions.items() if decision == "approved"
        }
        reasons |= {
            name: "its owner has refused"
            for name, decision in decisions.items()
            if decision == "refused"
        }
        waiting = sorted(
            name for name, decision in decisions.items() if decision == "pending"
        )
        if not waiting or time.monotonic() > end:
            break
        if waiting != announced:
            announced = waiting
            report(OwnersAwaited(waiting_text(waiting, plan), tuple(waiting)))
        time.sleep(POLL_INTERVAL)
    for name, reason in sorted(reasons.items()):
        report(Notice(f"{name} does not take part: {reason}"))
    reasons |= dict.fromkeys(waiting, "its owner has not decided yet")
    needed = sites_needed(server, len(names))
    if len(approved) < needed:
        why = "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items()))
        raise ConsentError(
            f"Cannot begin: {len(approved)} of {len(names)} sites take part in this "
            f"run, and {needed} are needed ({why}). Nothing was spent. Start the run "
            f"again when the owners have approved the plan {plan.hash[:12]}."
        )


def make_plan(
    server: Server, state: RunState, tallies: Tallies | None = None
) -> RunPlan:
    """Return everything that this run will ask of any site, or a look at their data by
    these tallies.
    """
    config = server.config
    rounds = config.rounds
    if tallies is None:
        orders = orders_of_run(server, state)
    else:
        rounds = 1
        first = server.clients[0]
        orders = [server.orders.look_at_data(state, first, tallies)]
    run = server.orders.run_id(state)
    schema = schema_of(config.data)
    return plan_of(
        run,
        config.method,
        rounds,
        config.federation.secure,
        orders,
        "" if schema is None else schema.hash,
    )


def orders_of_run(server: Server, state: RunState) -> list[DataOrder]:
    """Return one order of each kind and prototype that the run will send."""
    config = server.config
    head = config.analytic_head
    orders: list[DataOrder] = []
    for client in one_of_each_prototype(server):
        if config.releases:
            orders.append(server.orders.prepare(state, client))
        if head is not None and head.sums:
            orders.append(server.orders.sums(state, client, head.sends))
        if not find_method(config.method).analytic:
            orders.append(server.orders.train(state, client))
        if config.tests_at_sites:
            tallies = tallies_of_test(server.classes)
            orders.append(server.orders.look(state, client, tallies))
    return orders


def one_of_each_prototype(server: Server) -> list[str]:
    by_label = {server.label_of(client): client for client in reversed(server.clients)}
    return [by_label[label] for label in sorted(by_label)]


def show_to_others(
    server: Server, federation: Federation, chosen: Sequence[str]
) -> None:
    """Show the plan to sites that have not settled it: they were away, or their owners
    had not decided.

    Nobody waits for their owners now. A site that has not approved refuses the orders
    of this round.
    """
    agreement = server.orders.agreement
    others = [client for client in chosen if client not in agreement.settled]
    if agreement.plan and others:
        ask_for_consent(federation, agreement, others, {})


def ask_for_consent(
    federation: Federation,
    agreement: Agreement,
    clients: Sequence[str],
    reasons: dict[str, str],
) -> dict[str, str]:
    """Return what each site says: approved, pending or refused. `reasons` gets those of
    sites without an answer.
    """
    orders = [PlanOrder(client, agreement.text) for client in clients]
    decisions: dict[str, str] = {}
    for reply in federation.ask(orders):
        if isinstance(reply, Consent):
            same_plan = reply.plan == agreement.plan
            decisions[reply.client] = reply.decision if same_plan else "refused"
        elif isinstance(reply, Failure):
            reasons[reply.client] = reply.reason
    agreement.settled |= {
        name for name, decision in decisions.items() if decision != "pending"
    }
    return decisions


def sites_needed(server: Server, count: int) -> int:
    """Return how many sites must take part before anything is asked of them."""
    settings = server.config.federation
    if settings.secure:
        return agreed_threshold(count, settings.threshold)
    return max(1, math.ceil(settings.quorum * server.config.fraction * count - 1e-9))


def waiting_text(names: Sequence[str], plan: RunPlan) -> str:
    return (
        f"waiting for the owners of {', '.join(names)}: `fedaux site approve "
        f"{plan.hash[:12]}` at each site approves this run"
    )
