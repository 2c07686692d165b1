"""Releases are asked of those who have made none; what fails is data, what was spent is remembered."""

from fedaux.core.messages import Failure, PrepareOrder
from fedaux.core.timing import Costs
from fedaux.server.releases import collect_releases
from fedaux.server.run_state import RunState
from fedaux.server.server import Server
from fedaux.server.start import initial_state
from helpers.scripted import CLIENTS, Scripted, fails, make_server


def collected(federation: Scripted, server: Server, state: RunState) -> tuple[RunState, list[Failure], Costs]:
    costs = Costs()
    return *collect_releases(server, federation, state, CLIENTS, costs), costs


def test_those_who_answer_are_known_with_their_accounts() -> None:
    server, federation = make_server(), Scripted()
    state, failures, costs = collected(federation, server, initial_state(server))
    assert failures == []
    assert set(state.releases) == set(state.accounts) == set(state.prepared) == set(CLIENTS)
    assert state.heard("a") == (1, "")
    orders = federation.of_kind(PrepareOrder)
    size = sum(array.nbytes for arrays in (orders[0].extractor, orders[0].public) for array in arrays.values())
    assert (costs.sent, costs.received) == (4 * size, 4 * 2 * 8)
    again = Scripted()
    assert collected(again, server, state)[0].releases == state.releases
    assert again.asked == []


def test_a_failure_says_that_there_is_no_score_and_is_remembered_as_unheard() -> None:
    server = make_server()
    script = {"b": fails(PrepareOrder), "c": lambda order: None}
    state, failures, _ = collected(Scripted(script), server, initial_state(server))
    assert failures == [Failure("b", "no score: out of order")]
    assert set(state.releases) == {"a", "d"}
    assert state.unheard == {"b", "c"}  # their accounts may have an entry that nobody was told of
    assert collected(Scripted(), server, state)[0].unheard == set()
