"""Seconds are counted once, bytes both ways."""

import time
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config, run
from fedaux.core.messages import Failure, Update
from fedaux.core.timing import Costs, payload
from helpers.tables import TINY


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
    assert payload(Update("c", 1, 5, 0.1, 1.0, 0.0, 0.0, 0, "", weights, {"c": np.zeros(2)})) == 40 + 48 + 16
    assert payload(Failure("c", "a long reason")) == 0


def test_a_run_tells_what_it_cost(tmp_path: Path) -> None:
    state = run(Config.from_dict(TINY), tmp_path / "run", cache=tmp_path / "cache").state
    (weights,) = state.weights.values()
    model = sum(array.nbytes for array in weights.values())
    first, second = state.history
    assert set(first["seconds"]) == {"prepare", "score", "weigh", "train", "teach", "distil", "test"}
    assert "prepare" not in second["seconds"]
    assert second["bytes"] == {"sent": 3 * model, "received": 3 * model}
    assert first["bytes"]["sent"] > 3 * model  # what scorers publish, and the extractor
    released = sum(one.arrays["values"].nbytes for one in state.releases.values())
    assert first["bytes"]["received"] == 3 * model + released
    assert set(second["each"]) == {"client-000", "client-001", "client-002"}
    assert sum(one["share"] for one in second["each"].values()) == pytest.approx(1)
    assert "confusion" not in first
    ((label, table),) = second["confusion"].items()
    assert second["accuracy"][label] == np.trace(table) / np.sum(table)
