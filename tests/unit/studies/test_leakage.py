"""The measure of leakage: its parts against loops, and that it finds a score that knows
records.
"""

import numpy as np
import pytest
from studies.leakage import Leak, _row, matched, similarities, tiled


def test_similarities_are_cosines() -> None:
    rng = np.random.default_rng(0)
    rows, others = rng.normal(size=(3, 5)), rng.normal(size=(4, 5))
    found = similarities(rows, others)
    for i, row in enumerate(rows):
        for j, other in enumerate(others):
            assert found[i, j] == pytest.approx(
                row @ other / np.sqrt((row @ row) * (other @ other))
            )


def test_as_many_of_each_class_from_both() -> None:
    own, others = np.array([0, 0, 0, 1, 2]), np.array([0, 0, 1, 1, 1, 3])
    mine, theirs = matched(own, others, np.random.default_rng(0))
    assert sorted(own[mine]) == sorted(others[theirs]) == [0, 0, 1]
    assert len(set(mine)) == len(mine)


def test_a_score_that_knows_the_records_is_found() -> None:
    rng = np.random.default_rng(0)
    records, held_out = rng.normal(size=(200, 8)), rng.normal(size=(200, 8))
    knowing = records[:5] + rng.normal(0, 0.1, (5, 8))  # public images next to records
    near, far = (
        similarities(knowing, one).max(axis=1).mean() for one in (records, held_out)
    )
    assert near > far + 0.1
    row = _row("scores", [[Leak(near, far, far), Leak(near, far, far)]])
    assert row[3].startswith("+")
    assert row[4] == "100%"


def test_a_picture_has_a_row_for_each_image() -> None:
    images = np.zeros((5, 8, 8, 3), np.uint8)
    assert tiled(images, [images[:4]] * 5).shape == (40, 8 + 4 + 32, 3)
