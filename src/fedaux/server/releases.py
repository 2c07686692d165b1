"""P2, P3 from the server's side: ask those who are new for their release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedaux.core.messages import Account, Failure, Federation, Release
from fedaux.core.timing import Costs, payload_bytes
from fedaux.server.run_state import RunState
from fedaux.server.server import Server


def collect_releases(
    server: Server, federation: Federation, state: RunState, clients: Sequence[str], costs: Costs
) -> tuple[RunState, list[Failure]]:
    """Ask those without a release. One that fails keeps its place in the average, not in the ensemble.

    Clients are asked when they are first chosen, not before: who never takes part spends no privacy.
    """
    missing = [client for client in clients if client not in state.releases]
    if not missing:
        return state, []
    orders = [server.orders.prepare(state, client) for client in missing]
    releases: dict[str, Release] = {}
    failures: list[Failure] = []
    for reply in federation.ask(costs.count_sent(orders)):
        costs.received += payload_bytes(reply)
        if isinstance(reply, Release):
            releases[reply.client] = reply
        elif isinstance(reply, Failure):
            failures.append(replace(reply, reason=f"no score: {reply.reason}"))
    accounts = {client: Account.from_json(release.account) for client, release in releases.items()}
    return state.with_releases(releases).with_accounts(missing, accounts), failures
