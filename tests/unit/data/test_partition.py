"""Splits over clients with exact margins, of auxiliary data in two disjoint parts, and
into batches.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from fedaux.data.partition import (
    AuxSplit,
    batch_starts,
    batches,
    class_counts,
    dirichlet,
    iid,
    partition,
    round_to_margins,
    shards,
    sinkhorn,
)

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))


def cover(parts, size):
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(size))


@pytest.mark.parametrize("alpha", [0.01, 0.16, 1, 100])
@pytest.mark.parametrize("clients", [10, 20, 80, 100])
def test_both_margins_are_exact(clients, alpha):
    for seed in range(5):
        parts = dirichlet(LABELS, clients, alpha, np.random.default_rng(seed))
        counts = class_counts(LABELS, parts, 10)
        assert (counts.sum(1) == 50_000 // clients).all()
        assert (counts.sum(0) == 5000).all()
        assert cover(parts, 50_000)


@settings(deadline=None, max_examples=150)
@given(
    labels=st.lists(st.integers(0, 12), min_size=1, max_size=300),
    clients=st.integers(1, 40),
    alpha=st.floats(1e-6, 1e6),
    seed=st.integers(0, 2**32),
)
def test_any_labels_any_clients_any_alpha(labels, clients, alpha, seed):
    y, clients = np.array(labels), min(clients, len(labels))
    parts = dirichlet(y, clients, alpha, np.random.default_rng(seed))
    sizes = [len(part) for part in parts]
    assert cover(parts, len(y))
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None, max_examples=100)
@given(
    n=st.integers(1, 12),
    c=st.integers(1, 7),
    scale=st.floats(0.3, 30),
    seed=st.integers(0, 2**32),
)
def test_rounding_is_the_nearest_table_by_linear_programming(n, c, scale, seed):
    """Oracle: the same transport problem solved by HiGHS has the same value, and no
    cell moves by a whole record.
    """
    rng = np.random.default_rng(seed)
    whole = rng.integers(0, 5, (n, c)) + 1
    rows, columns = whole.sum(1), whole.sum(0)
    table = sinkhorn(rng.normal(size=(n, c)) * scale / 10, rows, columns, steps=10_000)
    # to float precision, so that the oracle has no other correction to make
    for _ in range(3000):
        table *= (rows / table.sum(1))[:, None]
        table *= columns / table.sum(0)
    rounded = round_to_margins(table, rows, columns)
    assert (rounded.sum(1) == rows).all()
    assert (rounded.sum(0) == columns).all()
    assert np.abs(rounded - table).max() < 1 + 1e-6

    floor = np.floor(table + 1e-9)
    margins = np.concatenate([rows - floor.sum(1), columns - floor.sum(0)])
    by_row = sparse.kron(sparse.eye_array(n), np.ones((1, c)))
    by_column = sparse.kron(np.ones((1, n)), sparse.eye_array(c))
    best = linprog(
        -(table - floor).ravel(),
        A_eq=sparse.vstack([by_row, by_column]),
        b_eq=margins,
        bounds=(0, 1),
    )
    assert ((table - floor) * (rounded - floor)).sum() == pytest.approx(
        -best.fun, abs=1e-6
    )


def test_rounding_mends_margins_that_are_far_off():
    table = np.array([[0.0, 0.0, 9.0], [0.2, 0.0, 9.0], [7.0, 0.0, 0.1]])
    rows, columns = np.array([4, 4, 4]), np.array([5, 2, 5])
    rounded = round_to_margins(table, rows, columns)
    assert (rounded >= 0).all()
    assert (rounded.sum(1) == rows).all()
    assert (rounded.sum(0) == columns).all()


def test_sinkhorn_agrees_with_plain_scaling_and_meets_the_margins():
    rng = np.random.default_rng(3)
    draw = rng.gamma(1.0, size=(20, 10))
    rows, columns = np.full(20, 250), np.full(10, 500)
    naive = draw.copy()
    for _ in range(500):
        for j in range(10):
            naive[:, j] *= columns[j] / sum(naive[:, j])
        for i in range(20):
            naive[i] *= rows[i] / sum(naive[i])
    scaled = sinkhorn(np.log(draw), rows, columns)
    assert np.abs(scaled.sum(1) - rows).sum() < 0.5
    np.testing.assert_allclose(scaled.sum(0), columns)
    np.testing.assert_allclose(scaled, naive, atol=0.5)


def test_a_draw_far_below_the_smallest_float_still_counts():
    scaled = sinkhorn(
        np.array([[-5000.0, -9000.0], [-9000.0, -5000.0]]),
        np.array([3, 5]),
        np.array([3, 5]),
    )
    np.testing.assert_allclose(scaled, [[3, 0], [0, 5]], atol=0.1)


def test_small_alpha_gives_one_class_and_large_alpha_gives_all():
    def largest_share(alpha):
        counts = class_counts(
            LABELS, dirichlet(LABELS, 100, alpha, np.random.default_rng(1)), 10
        )
        return counts.max(1).mean() / 500

    assert largest_share(0.01) > 0.9
    assert (
        largest_share(0.01)
        > largest_share(0.16)
        > largest_share(1)
        > largest_share(100)
    )
    assert largest_share(100) < 0.13


def test_unequal_classes_keep_their_totals_and_missing_ones_do_no_harm():
    labels = np.repeat([0, 3, 7], [900, 90, 11])
    counts = class_counts(
        labels, dirichlet(labels, 7, 0.1, np.random.default_rng(0)), 10
    )
    assert counts.sum(0).tolist() == [900, 0, 0, 90, 0, 0, 0, 11, 0, 0]
    assert sorted(counts.sum(1)) == [143] * 7


@pytest.mark.parametrize("kind", ["dirichlet", "shards", "iid"])
def test_the_generator_decides_the_split(kind):
    def split(seed):
        return partition(LABELS, kind, 20, 0.5, 2, np.random.default_rng(seed))

    assert all(np.array_equal(a, b) for a, b in zip(split(1), split(1), strict=True))
    assert not all(
        np.array_equal(a, b) for a, b in zip(split(1), split(2), strict=True)
    )
    assert cover(split(1), 50_000)
    assert all(part.dtype == np.int64 for part in split(1))


def test_shards_hold_few_classes_and_iid_holds_all():
    few = class_counts(LABELS, shards(LABELS, 50, 2, np.random.default_rng(0)), 10)
    assert ((few > 0).sum(1) <= 2).all()
    assert (few.sum(1) == 1000).all()
    many = class_counts(LABELS, iid(LABELS, 50, np.random.default_rng(0)), 10)
    assert many.min() > 50
    assert (many.sum(1) == 1000).all()


def test_shards_of_one_class_are_not_cut_in_file_order():
    parts = shards(np.zeros(100, dtype=np.int64), 2, 1, np.random.default_rng(0))
    assert {tuple(part) for part in parts} != {tuple(range(50)), tuple(range(50, 100))}


@pytest.mark.parametrize(
    ("kind", "clients", "alpha", "per_client", "message"),
    [
        ("dirichlet", 3, 0.0, 1, "alpha must lie between"),
        ("dirichlet", 3, float("nan"), 1, "alpha must lie between"),
        ("dirichlet", 11, 1.0, 1, "Use between 1 and 10"),
        ("iid", 0, 1.0, 1, "Use between 1 and 10"),
        ("shards", 4, 1.0, 3, "cannot make 12 shards"),
        ("shards", 4, 1.0, 0, "at least one shard"),
        ("dirichlett", 3, 1.0, 1, "Choose one of: dirichlet, shards, iid"),
    ],
)
def test_errors_say_what_to_do(kind, clients, alpha, per_client, message):
    with pytest.raises(ValueError, match=message):
        partition(
            np.arange(10), kind, clients, alpha, per_client, np.random.default_rng(0)
        )


def test_a_fifth_is_negatives_and_nothing_is_lost():
    split = AuxSplit.draw(1000, 0.2, np.random.default_rng(0))
    assert (len(split.negatives), len(split.distill)) == (200, 800)
    assert sorted([*split.negatives, *split.distill]) == list(range(1000))


@given(size=st.integers(2, 400), share=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_disjoint_or_refused(size, share, seed):
    if not 0 < round(share * size) < size:
        with pytest.raises(ValueError, match="Give more auxiliary data"):
            AuxSplit.draw(size, share, np.random.default_rng(seed))
    else:
        split = AuxSplit.draw(size, share, np.random.default_rng(seed))
        assert not set(split.negatives) & set(split.distill)
        assert len(split.negatives) == round(share * size)


@pytest.mark.parametrize(
    ("negatives", "distill", "message"),
    [
        ([0, 1], [1, 2], "must be disjoint"),
        ([0, 0], [1, 2], "must be disjoint"),
        ([], [1, 2], "0 negatives and 2 records"),
        ([1], [], "1 negatives and 0 records"),
    ],
)
def test_overlap_empty_halves_and_strange_shares_are_refused(
    negatives, distill, message
):
    with pytest.raises(ValueError, match="between 0 and 1"):
        AuxSplit.draw(100, 20, np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        AuxSplit(np.array(negatives, dtype=np.int64), np.array(distill, dtype=np.int64))


@pytest.mark.parametrize(
    ("size", "batch"), [(10, 3), (9, 4), (5, 5), (1, 4), (33, 32), (64, 32), (3, 1)]
)
def test_batches_cover_everything_once_and_none_has_one_row(
    size: int, batch: int
) -> None:
    epoch = list(batches(size, batch, torch.Generator().manual_seed(0)))
    assert sorted(np.concatenate(epoch)) == list(range(size))
    assert size == 1 or batch == 1 or min(map(len, epoch)) > 1
    assert len(epoch) == len(batch_starts(size, batch))
    assert all(len(rows) == batch for rows in epoch[:-1])
