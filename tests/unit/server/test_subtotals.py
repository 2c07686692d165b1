"""A round of some clients as one reply; what becomes of whole runs is in `test_regions`."""

import json

import numpy as np

from fedaux.core.messages import Account, Failure, Subtotal, TrainOrder, Update
from fedaux.core.timing import Costs
from fedaux.server.round import Round
from fedaux.server.start import initial_state
from fedaux.server.subtotals import merge_subtotal, subtotal
from helpers.scripted import CLIENTS, MLP, honest, make_server

ACCOUNT = Account(0.5, 1e-5, "replace-one", "record", 1)


def added(server_clients: str) -> Round:
    """A round to which these clients' updates were added; the last one's training was private."""
    server = make_server()
    state = initial_state(server)
    current = Round.start(server, None, state, CLIENTS, Costs())
    for client in server_clients:
        order = server.orders.train(state, client)
        reply = honest(order)
        assert isinstance(order, TrainOrder)
        assert isinstance(reply, Update)
        private = client == server_clients[-1]
        current.add(reply if not private else Update(**{**vars(reply), "noise": 1.5, "rate": 0.5, "steps": 3}))
    return current


def test_two_subtotals_are_the_round_of_all() -> None:
    whole, merged = added("abcd"), added("")
    for part in ("ab", "cd"):
        current = added(part)
        current.failures.append(Failure(part, "gone"))
        told = subtotal(current, dict.fromkeys(part, ACCOUNT))
        facts = json.loads(json.dumps(told.facts))
        assert merge_subtotal(merged, Subtotal(facts, told.contribution)) == dict.fromkeys(part, ACCOUNT)
    assert merged.client_metrics == whole.client_metrics
    assert merged.norms == whole.norms
    assert merged.costs.received == whole.costs.received > 0
    assert (merged.unprotected, sorted(merged.private_training)) == (2, ["b", "d"])
    assert (whole.unprotected, sorted(whole.private_training)) == (3, ["d"])
    assert [failure.client for failure in merged.failures] == ["ab", "cd"]
    assert (merged.total.clients, merged.total.teachers) == (whole.total.clients, whole.total.teachers) == (4, 4)
    (mine, _), (theirs, _) = merged.total.finish(), whole.total.finish()
    assert mine[MLP.label].keys() == theirs[MLP.label].keys()
    assert all(np.array_equal(array, theirs[MLP.label][name]) for name, array in mine[MLP.label].items())
