"""P2, P3 from the server's side: ask those who are new for their release."""

from __future__ import annotations

from collections.abc import Sequence

from fedaux.algorithms.run_state import RunState
from fedaux.algorithms.server import Server
from fedaux.core.messages import Account, Failure, Federation, PrepareOrder, Release
from fedaux.core.timing import Costs, payload


def collect_releases(
    server: Server, federation: Federation, state: RunState, clients: Sequence[str], costs: Costs
) -> tuple[RunState, list[Failure]]:
    """Ask those without a release. One that fails keeps its place in the average, not in the ensemble.

    Clients are asked when they are first chosen, not before: who never takes part spends no privacy.
    """
    missing = [client for client in clients if client not in state.releases]
    orders = [server.orders.prepare(state, client) for client in missing]
    releases: dict[str, Release] = {}
    failures: list[Failure] = []
    sizes = order_sizes(orders)
    for reply in federation.ask(costs.asked(orders)):
        costs.received += payload(reply)
        if isinstance(reply, Release):
            releases[reply.client] = reply
        elif isinstance(reply, Failure):
            failures.append(Failure(reply.client, f"no score: {reply.reason}"))
        server.tell("score", len(releases) + len(failures), len(missing), f"{len(releases)} releases, {sizes}")
    accounts = {client: Account.from_json(release.account) for client, release in releases.items()}
    return state.with_releases(releases).with_accounts(missing, accounts), failures


def order_sizes(orders: Sequence[PrepareOrder]) -> str:
    """What crosses to each new client: h0, unless it has it, and what the scorer published of D⁻."""
    if not orders:
        return "nobody new"
    extractor, public = (
        max(sum(array.nbytes for array in getattr(order, room).values()) for order in orders) / 1e6
        for room in ("extractor", "public")
    )
    first = f"extractor {extractor:.2f} MB" if extractor else "extractor not sent: clients have it"
    return f"{first}, public map {public:.2f} MB"
