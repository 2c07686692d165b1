"""Labels keep their distance."""

import numpy as np
import pytest

from fedaux.report.layout import spread_out


def test_labels_keep_their_distance() -> None:
    heights = [0.5, 0.5, 0.51, 0.9, 0.0, 0.01]
    placed = spread_out([(height, str(i), "k") for i, height in enumerate(heights)], gap=0.04)
    moved = [height for height, _, _ in placed]
    assert np.diff(moved).min() >= 0.04 - 1e-12
    assert [label for _, label, _ in placed] == ["4", "5", "0", "1", "2", "3"]
    assert moved == pytest.approx([0.0, 0.04, 0.5, 0.54, 0.58, 0.9])


def test_labels_that_are_apart_stay_where_they_are() -> None:
    ends = [(0.1, "a", "k"), (0.5, "b", "k"), (0.9, "c", "k")]
    assert spread_out(ends, gap=0.04) == ends
    assert spread_out([], gap=0.04) == []
