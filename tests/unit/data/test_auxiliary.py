"""Auxiliary data in two disjoint parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.data.auxiliary import AuxSplit


def test_a_fifth_is_negatives_and_nothing_is_lost():
    split = AuxSplit.draw(1000, 0.2, np.random.default_rng(0))
    assert (len(split.negatives), len(split.distill)) == (200, 800)
    assert sorted([*split.negatives, *split.distill]) == list(range(1000))


@given(size=st.integers(2, 400), share=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_disjoint_or_refused(size, share, seed):
    if not 0 < round(share * size) < size:
        with pytest.raises(ValueError, match="give more auxiliary data"):
            AuxSplit.draw(size, share, np.random.default_rng(seed))
    else:
        split = AuxSplit.draw(size, share, np.random.default_rng(seed))
        assert not set(split.negatives) & set(split.distill)
        assert len(split.negatives) == round(share * size)


def test_random_but_repeatable():
    first, again, other = (AuxSplit.draw(50, 0.2, np.random.default_rng(seed)).negatives for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, np.arange(10))


@pytest.mark.parametrize(
    ("negatives", "distill", "message"),
    [
        ([0, 1], [1, 2], "must be disjoint"),
        ([0, 0], [1, 2], "must be disjoint"),
        ([], [1, 2], "0 negatives and 2 records"),
        ([1], [], "1 negatives and 0 records"),
    ],
)
def test_overlap_and_empty_halves_are_refused(negatives, distill, message):
    with pytest.raises(ValueError, match=message):
        AuxSplit(np.array(negatives, dtype=np.int64), np.array(distill, dtype=np.int64))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 20])
def test_a_share_is_between_none_and_all(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        AuxSplit.draw(100, share, np.random.default_rng(0))
