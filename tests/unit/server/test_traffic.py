"""Bytes both ways count as costs of the round in which they are sent."""

from fedaux.core.timing import Costs
from fedaux.messages import Order, Update
from fedaux.server.traffic import CountedFederation
from helpers.samples import prepare_order, train_order
from helpers.scripted import Scripted, honest


def test_orders_are_counted_as_they_are_sent() -> None:
    costs = Costs()
    orders: list[Order] = [train_order("a"), train_order("b")]
    scripted = Scripted({}, arrival=lambda replies: [])
    federation = CountedFederation(scripted, costs)
    assert list(federation.ask(orders)) == []
    assert scripted.asked == orders
    list(federation.ask([prepare_order()]))
    arrays = [*train_order().weights.values(), *train_order().weights.values()]
    arrays += [*prepare_order().extractor.values(), *prepare_order().public.values()]
    assert (costs.sent, costs.received) == (sum(array.nbytes for array in arrays), 0)


def test_replies_are_counted_as_they_are_taken_and_are_the_same() -> None:
    costs = Costs()
    federation = CountedFederation(Scripted(), costs)
    replies = federation.ask([train_order("a"), train_order("b")])
    size = sum(array.nbytes for array in train_order().weights.values())
    for count, reply in enumerate(replies, 1):
        assert isinstance(reply, Update)
        expected = honest(train_order(reply.client))
        assert isinstance(expected, Update)
        assert reply.weights.keys() == expected.weights.keys()
        assert costs.received == count * size
    assert costs.received == 2 * size
