"""Costs of rounds: preparation from the first, everything else from the last one, means
over runs.
"""

import pytest
from studies.costs import round_costs

from fedaux.core.results import RoundResult


def history(factor: int) -> list[RoundResult]:
    first = {
        "bytes_sent": 3_000_000 * factor,
        "seconds": {"prepare": 25.0 * factor, "train": 50.0},
    }
    later = {
        "bytes_sent": 1_000_000 * factor,
        "seconds": {"train": 2.0 * factor, "teach": 1.0},
    }
    return [
        RoundResult(number, {"a": 0.5}, {}, **facts)
        for number, facts in enumerate((first, later), 1)
    ]


def test_means_over_runs() -> None:
    found = round_costs([history(1), history(3)])
    assert found["MB down, round 1"] == pytest.approx(6)
    assert found["MB down, last"] == pytest.approx(2)
    assert found["prepare"] == pytest.approx((0.5 + 1.5) / 2)
    assert found["s of training"] == pytest.approx(4)
    assert found["teach"] == pytest.approx((1 / 2 + 1 / 6) / 2)
    assert found["distil"] == 0
