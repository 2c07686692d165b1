"""Costs of rounds: preparation from the first, everything else from a later one, means over runs."""

import pytest

from fedaux.core.results import RoundResult
from fedaux.sweeps.costs import round_costs


def history(factor: int) -> list[RoundResult]:
    first = {"bytes_sent": 3_000_000 * factor, "seconds": {"prepare": 1.0 * factor, "train": 50.0}}
    later = {"bytes_sent": 1_000_000 * factor, "seconds": {"train": 2.0 * factor}}
    return [RoundResult(number, {"a": 0.5}, {}, **facts) for number, facts in enumerate((first, later), 1)]


def test_means_over_runs() -> None:
    found = round_costs([history(1), history(3)])
    assert found["MB down, round 1"] == pytest.approx(6)
    assert found["MB down, later"] == pytest.approx(2)
    assert found["s, prepare"] == pytest.approx(2)
    assert found["s, train"] == pytest.approx(4)
    assert found["s, distil"] == 0
