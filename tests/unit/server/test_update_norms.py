"""What the limits on updates are made of: norms, their medians, and the largest median of each prototype."""

import numpy as np

from fedaux.core.results import RoundResult
from fedaux.server.update_norms import NORM_LIMIT, medians, norm_limits, update_norm


def test_limits_come_from_the_largest_median_of_each_prototype() -> None:
    history = [
        RoundResult(1, {}, {}, update_norms={"a": {"parameters": 1.0, "buffers": 7.0}}),
        RoundResult(2, {}, {}, update_norms={"a": {"parameters": 2.0, "buffers": 3.0}, "b": {"parameters": 0.0}}),
    ]
    assert norm_limits(history) == {"a": {"parameters": 2 * NORM_LIMIT, "buffers": 7 * NORM_LIMIT}, "b": {}}
    assert norm_limits([]) == {}


def test_update_norm_is_the_distance_by_the_root_of_the_steps() -> None:
    sent = {"parameters": np.zeros(2, np.float32), "buffers": np.ones(1, np.float32), "counters": np.array([3])}
    got = {"parameters": np.array([3, 4], np.float32), "buffers": np.ones(1, np.float32), "counters": np.array([99])}
    assert update_norm(sent, got, 4) == {"parameters": 2.5, "buffers": 0.0}


def test_one_liar_of_three_does_not_move_the_median() -> None:
    norms = [
        {"parameters": 1.0, "buffers": 0.0},
        {"parameters": 1e9, "buffers": 5.0},
        {"parameters": 2.0, "buffers": 1.0},
    ]
    assert medians(norms) == {"parameters": 2.0, "buffers": 1.0}
