"""What a whole run says of its costs: seconds by phase, bytes both ways."""

from pathlib import Path

import numpy as np
import pytest

from fedaux import Config, run
from helpers.tiny import TINY


def test_a_run_tells_what_it_cost(tmp_path: Path) -> None:
    state = run(
        Config.from_dict(TINY), tmp_path / "run", cache=tmp_path / "cache"
    ).state
    (weights,) = state.weights.values()
    model = sum(array.nbytes for array in weights.values())
    first, second = state.history
    assert set(first.seconds) == {
        "prepare",
        "score",
        "weigh",
        "train",
        "teach",
        "distil",
        "test",
    }
    assert "prepare" not in second.seconds
    assert (second.bytes_sent, second.bytes_received) == (3 * model, 3 * model)
    assert first.bytes_sent > 3 * model  # what scorers publish, and the extractor
    released = sum(one.arrays["values"].nbytes for one in state.releases.values())
    assert first.bytes_received == 3 * model + released
    assert set(second.client_metrics) == {"client-000", "client-001", "client-002"}
    assert sum(
        metrics.teacher_share or 0 for metrics in second.client_metrics.values()
    ) == pytest.approx(1)
    assert first.confusion is None
    assert second.confusion is not None
    ((label, table),) = second.confusion.items()
    assert second.accuracy[label] == np.trace(table) / np.sum(table)
