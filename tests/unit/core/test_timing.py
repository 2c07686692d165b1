"""Seconds are counted once, bytes both ways."""

import numpy as np
import pytest

from fedaux.core.failures import Failure
from fedaux.core.timing import Costs, payload_bytes
from fedaux.messages import Update


class Clock:
    """A clock that goes on only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    return clock


def test_a_second_within_a_phase_belongs_to_the_innermost_alone(clock: Clock) -> None:
    costs = Costs()
    with costs.phase("outer"):
        clock.now += 1
        with costs.phase("inner"):
            clock.now += 10
            with costs.phase("innermost"):
                clock.now += 100
        with costs.phase("inner"):
            clock.now += 20
        clock.now += 2
    assert costs.seconds == {"outer": 3, "inner": 30, "innermost": 100}


def test_a_phase_that_fails_is_counted_too(clock: Clock) -> None:
    costs = Costs()

    def fail() -> None:
        clock.now += 5
        raise KeyError

    with pytest.raises(KeyError), costs.phase("failing"):
        fail()
    assert costs.seconds == {"failing": 5}


def test_payload_counts_arrays_and_nothing_else() -> None:
    weights = {"a": np.zeros(10, np.float32), "b": np.zeros((2, 3), np.int64)}
    assert (
        payload_bytes(
            Update("c", 1, 5, 0.1, 1.0, 0.0, 0.0, 0, "", weights, {"c": np.zeros(2)})
        )
        == 40 + 48 + 16
    )
    assert payload_bytes(Failure("c", "a long reason")) == 0
