"""Class sums, counts and second moments under one noise: rows, integers, sensitivity, and the heads made of them."""

import itertools

import numpy as np
import pytest

from fedaux.core.messages import Arrays, OrderError
from fedaux.data.records import Records
from fedaux.privacy.mechanism import GRID, unit_rows
from fedaux.privacy.units import Units
from fedaux.scoring.class_moments import (
    ROW_STEPS,
    SHARE_STEPS,
    ClassMomentsScorer,
    moment_rows,
    public_split,
    sensitivity,
)
from fedaux.scoring.embedding import embed_per_record

SPLITS = [
    (0.6, 0.0, 0.8),
    (0.8, 0.1, 0.59),
    (0.98, 0.1, 0.1),
    (0.5, 0.5, 0.7),
    (0.0, 0.6, 0.8),
    (0.8, 0.6, 0.0),
    (0.2, 0.05, 0.97),
]
ADJACENCIES = ["replace-one", "add-remove"]


def public_of(width: int, k: int, split: tuple[float, ...], seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(width, k)).astype(np.float32)
    usable = (
        public_split(*split) if np.linalg.norm(split) == pytest.approx(1.0, abs=0.02) else np.array(split, np.float32)
    )
    return {"mean": rng.normal(size=width).astype(np.float32), "basis": basis, "split": usable}


def naive_row(phi: np.ndarray, label: int, classes: int, split: tuple[float, ...]) -> np.ndarray:
    """v of one record, from its definition."""
    a, b, m = (float(np.float32(part)) for part in split)
    row = np.zeros((classes, len(phi) + 1))
    if 0 <= label < classes:
        row[label] = [*(a * phi), b]
        second = [
            m * (1 if i == j else np.sqrt(2)) * (phi[i] * phi[j]) for i in range(len(phi)) for j in range(i, len(phi))
        ]
    else:
        second = [0.0] * (len(phi) * (len(phi) + 1) // 2)
    return np.concatenate([row.ravel(), second])


@pytest.mark.parametrize("split", SPLITS)
def test_a_row_has_the_norm_of_its_split_and_its_triangle_is_the_products(split: tuple[float, ...]) -> None:
    rng = np.random.default_rng(1)
    phi = unit_rows(rng.normal(size=(20, 5)))
    rows = moment_rows(phi, np.array(split))
    assert np.allclose(np.linalg.norm(rows, axis=1), np.linalg.norm(split))
    a, b, m = split
    # an inner product of two rows of one class is a²t + b² + m²t²: the triangle stands for the whole matrix
    t = phi @ phi.T
    assert np.allclose(rows @ rows.T, a**2 * t + b**2 + m**2 * t**2)


@pytest.mark.parametrize("split", SPLITS)
def test_the_sensitivity_is_the_largest_distance_of_two_records_and_is_reached(split: tuple[float, ...]) -> None:
    """Brute force over the angle of two directions, classes alike or not, records without direction or class."""
    one, none = np.array([1.0, 0.0]), np.zeros(2)
    angles = np.linspace(0, np.pi, 4001)
    others = [*np.stack([np.cos(angles), np.sin(angles)], axis=1), none]
    cases = [naive_row(phi, label, 2, split) for phi in others for label in (0, 1)] + [np.zeros(9)]
    start = [naive_row(one, 0, 2, split), naive_row(none, 0, 2, split), np.zeros(9)]
    far = max(float(np.linalg.norm(row - first)) for row in cases for first in start)
    claimed = sensitivity(np.array(split, np.float32).astype(np.float64), "replace-one")
    assert far <= claimed * (1 + 1e-12)
    assert far > 0.999 * claimed
    alone = max(float(np.linalg.norm(row)) for row in cases)
    assert alone == pytest.approx(sensitivity(np.array(split), "add-remove"), rel=1e-6)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_integers_are_those_of_a_naive_sum(adjacency: str) -> None:
    rng, classes = np.random.default_rng(2), 3
    public, scorer = public_of(6, 4, (0.8, 0.1, 0.59)), ClassMomentsScorer(classes, 4)
    features, labels = rng.normal(size=(50, 6)).astype(np.float32), rng.integers(-1, 5, 50)
    features[3] = np.nan
    features[4] = public["mean"]
    shares = rng.choice([1.0, 0.5, 1 / 3, 1 / 7, 0.0], 50)
    found = scorer.summarise(public, features, labels, adjacency, 20, shares)
    phi = embed_per_record(public, features)
    assert not phi[[3, 4]].any()
    expected = np.zeros(scorer.size(public), np.int64)
    for row, label, share in zip(phi, labels, shares, strict=True):
        steps = np.trunc((ROW_STEPS - 1) * naive_row(row, label, classes, (0.8, 0.1, 0.59)))
        expected += steps.astype(np.int64) * int(share * SHARE_STEPS)
    assert np.array_equal(found.values, expected)
    assert (found.step, found.records) == (1 / GRID, 20)
    assert found.values.shape == (3 * 5 + 10,)


def test_what_a_record_adds_is_its_own_to_the_bit_whatever_its_company(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    public, scorer = public_of(9, 7, (0.8, 0.1, 0.59)), ClassMomentsScorer(4, 7)
    features, labels = rng.normal(size=(101, 9)).astype(np.float32), rng.integers(0, 4, 101)
    features[::10] *= 1e20

    def values(rows: slice | list[int]) -> np.ndarray:
        part = features[rows]
        return scorer.summarise(public, part, labels[rows], "replace-one", 101, np.ones(len(part))).values

    alone = sum(values([index]) for index in range(101))
    assert np.array_equal(values(slice(None)), alone)
    monkeypatch.setattr("fedaux.scoring.class_moments._ENTRIES", 200)  # five records at a time
    assert np.array_equal(values(slice(None)), alone)
    assert np.array_equal(values(slice(0, 60)) + values(slice(60, 101)), alone)  # any clients: the same total


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("split", SPLITS[:4])
def test_no_pair_of_records_moves_the_integers_further_than_claimed(split: tuple[float, ...], adjacency: str) -> None:
    """Random pairs, and pairs at the worst angle; the bound is nearly reached."""
    rng, classes, k = np.random.default_rng(4), 2, 3
    public, scorer = public_of(k, k, split), ClassMomentsScorer(classes, k)
    public["basis"], public["mean"] = np.eye(k, dtype=np.float32), np.zeros(k, np.float32)
    a, _, m = split
    worst = -1.0 if m == 0 else max(-1.0, -(a**2) / (2 * m**2))
    far, claimed = 0.0, scorer.bound(public, adjacency, 1).sensitivity
    for trial in range(1500):
        one = rng.normal(size=k) * 10 ** rng.uniform(-5, 5)
        other = rng.normal(size=k)
        if trial % 2:  # at the worst angle to it
            one /= np.linalg.norm(one)
            other -= one * (one @ other)
            other = worst * one + np.sqrt(1 - worst**2) * other / np.linalg.norm(other)
        labels = rng.integers(-1, 2, 2) if trial % 3 else np.zeros(2, np.int64)
        first, second = (
            scorer.summarise(public, row[None].astype(np.float32), labels[[i]], adjacency, 1, np.ones(1)).values
            for i, row in enumerate((one, other))
        )
        if adjacency == "add-remove":
            second = np.zeros_like(first)
        far = max(far, float(np.linalg.norm((first - second).astype(np.float64))))
    assert far <= claimed
    assert far > 0.99 * claimed


def test_no_person_moves_the_integers_further_than_one_record_could() -> None:
    rng, split = np.random.default_rng(5), (0.6, 0.1, 0.79)
    public, scorer = public_of(4, 4, split), ClassMomentsScorer(3, 4)
    claimed = scorer.bound(public, "replace-one", 3).sensitivity
    far = 0.0
    for cap, trial in itertools.product((1, 3, 10, 1000), range(60)):
        crowd = [rng.normal(size=(2, 4)) for _ in range(2)]
        many = int(rng.integers(1, cap + 1))
        one = rng.normal(size=(many, 4)) if trial % 2 else np.tile(rng.normal(size=4), (many, 1))
        same = trial % 3 == 0  # as far away as can be, in the same class
        other = 2 * public["mean"] - one if same else rng.normal(size=(int(rng.integers(1, cap + 1)), 4))
        summed = []
        for person in (one, other):
            rows = np.concatenate([*crowd, person]).astype(np.float32)
            whose = np.repeat(np.arange(3), [2, 2, len(person)])
            labels = (
                np.zeros(len(rows), np.int64) if same else np.repeat([0, 1, int(person is one)], [2, 2, len(person)])
            )
            shares = Units.of(Records(rows, labels, person=whose), "person", cap).shares
            summed.append(scorer.summarise(public, rows, labels, "replace-one", 3, shares).values)
        far = max(far, float(np.linalg.norm((summed[0] - summed[1]).astype(np.float64))))
    assert far <= claimed
    assert far > 0.9 * claimed


@pytest.mark.parametrize(
    "split", [(0.8, 0.6, 0.8), (-0.6, 0.0, 0.8), (np.nan, 0.0, 0.8), (np.inf, 0, 0), (0.0, 0.0, 0.0), (1.0, 0.3, 0.0)]
)
def test_a_split_that_would_break_the_proof_is_refused_before_a_record_is_read(split: tuple[float, ...]) -> None:
    public, scorer = public_of(4, 3, split), ClassMomentsScorer(2, 3)
    with pytest.raises(OrderError, match="split"):
        scorer.size(public)  # which a client asks for before it enters anything in its account
    with pytest.raises(OrderError, match="split"):
        scorer.summarise(public, np.ones((1, 4), np.float32), np.zeros(1, np.int64), "replace-one", 1, np.ones(1))
    public["split"] = np.ones((1, 3), np.float32)
    with pytest.raises(OrderError, match="'split' has shape"):
        scorer.size(public)


def test_a_bound_on_the_norm_is_reached_where_all_records_are_alike() -> None:
    public, scorer = public_of(4, 3, (0.6, 0.0, 0.8)), ClassMomentsScorer(2, 3)
    rows = np.tile(np.random.default_rng(6).normal(size=4).astype(np.float32), (50, 1))
    found = scorer.summarise(public, rows, np.ones(50, np.int64), "replace-one", 50, np.ones(50))
    assert 0.999 < np.linalg.norm(found.values) / scorer.bound(public, "replace-one", 50).norm <= 1.0
