"""A round of some of the clients, as one reply: a regional server adds up theirs, a merging server adds up regions.

Sums are integers, so the merged round has the bits of one in which a single server reads all replies.
"""

from __future__ import annotations

from fedaux.core.messages import Account, Failure, Subtotal
from fedaux.core.results import ClientMetrics, PrivateTraining
from fedaux.methods.contribution import Contribution
from fedaux.server.round import Round


def subtotal(current: Round, accounts: dict[str, Account]) -> Subtotal:
    """Of all that has been added to a round so far, and what those that answered have spent."""
    facts = {
        "client_metrics": {client: vars(item) for client, item in current.client_metrics.items()},
        "failures": [vars(failure) for failure in current.failures],
        "private_training": {client: vars(item) for client, item in current.private_training.items()},
        "accounts": {client: vars(account) for client, account in accounts.items()},
        "unprotected": current.unprotected,
        "norms": current.norms,
        "received": current.costs.received,
    }
    return Subtotal(facts, current.total.to_arrays())


def merge_subtotal(current: Round, part: Subtotal) -> dict[str, Account]:
    """Add a region's clients to a round; the accounts of those that answered."""
    facts = part.facts
    current.total.merge(Contribution.from_arrays(part.contribution))
    current.client_metrics |= {client: ClientMetrics(**item) for client, item in facts["client_metrics"].items()}
    current.failures += [Failure(**item) for item in facts["failures"]]
    current.private_training |= {client: PrivateTraining(**item) for client, item in facts["private_training"].items()}
    current.unprotected += facts["unprotected"]
    for label, norms in facts["norms"].items():
        current.norms.setdefault(label, []).extend(norms)
    current.costs.received += facts["received"]
    return {client: Account(**item) for client, item in facts["accounts"].items()}
