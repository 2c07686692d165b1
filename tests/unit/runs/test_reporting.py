"""Who was asked for what, and what came back; the replies are those of the federation itself."""

from collections.abc import Iterator, Sequence

from fedaux.core.messages import NO_ANSWER, Account, Failure, Order, Reply, Subtotal
from fedaux.core.progress import OrdersSent, ProgressEvent, ReplyReceived
from fedaux.core.timing import payload_bytes
from fedaux.runs.reporting import ReportingFederation
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from fedaux.server.server import Server
from helpers.scripted import Scripted, account, honest, make_server


def prepared() -> tuple[Server, RunState]:
    server = make_server()
    state = initial_state(server)
    server.restore(state)
    return server, state


def test_every_order_and_every_reply_is_reported() -> None:
    (server, state), events = prepared(), list[ProgressEvent]()
    lost, said = Failure("b", "gone", NO_ANSWER), Account.from_json(account())
    federation = ReportingFederation(Scripted({"b": lambda order: lost}), events.append)
    releases = [server.orders.prepare(state, name) for name in "abc"]
    assert list(federation.ask(releases))[1] == lost
    assert events == [
        OrdersSent("release", ("a", "b", "c"), None, sum(map(payload_bytes, releases))),
        ReplyReceived("a", "release", payload_bytes(honest(releases[0])), said),
        ReplyReceived("b", "release", 0, failure=lost),
        ReplyReceived("c", "release", payload_bytes(honest(releases[2])), said),
    ]


def test_a_reply_is_reported_when_it_arrives_and_not_before() -> None:
    (server, state), events = prepared(), list[ProgressEvent]()
    orders = [server.orders.train(state, name) for name in "ab"]
    replies = ReportingFederation(Scripted(), events.append).ask(orders)
    next(replies)
    sent = OrdersSent("train", ("a", "b"), 1, sum(map(payload_bytes, orders)))
    assert (events[0], [type(event) for event in events]) == (sent, [OrdersSent, ReplyReceived])


class Region:
    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        yield Subtotal({}, {})


def test_sums_of_a_region_are_no_clients_reply_and_no_orders_are_no_event() -> None:
    (server, state), events = prepared(), list[ProgressEvent]()
    federation = ReportingFederation(Region(), events.append)
    assert list(federation.ask([])) == []
    assert len(list(federation.ask([server.orders.train(state, "a")]))) == 1
    assert [type(event) for event in events] == [OrdersSent]
