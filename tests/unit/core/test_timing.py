"""Seconds are counted once, bytes both ways."""

import time

import numpy as np
import pytest

from fedaux.core.messages import Failure, Update
from fedaux.core.timing import Costs, payload_bytes
from helpers.samples import prepare_order, train_order


def test_a_second_within_a_phase_belongs_to_the_innermost_alone() -> None:
    costs = Costs()
    with costs.phase("outer"):
        time.sleep(0.02)
        with costs.phase("inner"):
            time.sleep(0.05)
        with costs.phase("inner"):
            time.sleep(0.05)
    assert costs.seconds["inner"] == pytest.approx(0.1, abs=0.04)
    assert costs.seconds["outer"] == pytest.approx(0.02, abs=0.015)


def test_a_phase_that_fails_is_counted_too() -> None:
    costs = Costs()
    with pytest.raises(ZeroDivisionError), costs.phase("failing"):
        _ = 1 / 0
    assert costs.seconds["failing"] > 0


def test_payload_counts_arrays_and_nothing_else() -> None:
    weights = {"a": np.zeros(10, np.float32), "b": np.zeros((2, 3), np.int64)}
    assert payload_bytes(Update("c", 1, 5, 0.1, 1.0, 0.0, 0.0, 0, "", weights)) == 40 + 48
    assert payload_bytes(Failure("c", "a long reason")) == 0


def test_orders_are_counted_as_they_are_sent() -> None:
    costs = Costs()
    orders = [train_order("a"), train_order("b")]
    assert costs.asked(orders) is orders
    costs.asked([prepare_order()])
    arrays = [*train_order().weights.values(), *train_order().weights.values()]
    arrays += [*prepare_order().extractor.values(), *prepare_order().public.values()]
    assert costs.to_record()["bytes"] == {"sent": sum(array.nbytes for array in arrays), "received": 0}
