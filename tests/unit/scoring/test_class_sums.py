"""Sums over classes: their sensitivity is what is claimed, and pooling is least squares."""

import numpy as np
import pytest

from fedaux.core.messages import Release
from fedaux.data.records import Records
from fedaux.privacy.clipping import GRID, clip_rows, unit_rows
from fedaux.privacy.units import Units
from fedaux.scoring.class_sums import class_sums, pool

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_no_record_moves_the_sums_further_than_claimed(adjacency: str) -> None:
    worst = 0.0
    for _ in range(3000):
        rows = clip_rows(RNG.normal(size=(4, 3)) * 10 ** RNG.uniform(-2, 2))
        labels = RNG.integers(0, 3, 4)
        one = class_sums(rows, labels, 3, adjacency, 4, np.ones(len(rows)))
        if adjacency == "add-remove":
            two = class_sums(rows[1:], labels[1:], 3, adjacency, 4, np.ones(len(rows) - 1))
        else:
            rows, labels = rows.copy(), labels.copy()
            rows[0], labels[0] = -rows[0] / max(np.linalg.norm(rows[0]), 1e-9), RNG.integers(3)
            two = class_sums(rows, labels, 3, adjacency, 4, np.ones(len(rows)))
        assert (one.sensitivity, one.step) == (two.sensitivity, two.step)
        worst = max(worst, float(np.linalg.norm((one.values - two.values).astype(float))) / one.sensitivity)
    assert 0.95 < worst <= 1.0


def test_sums_and_counts_are_what_they_are_called() -> None:
    rows, labels = clip_rows(RNG.normal(size=(50, 4))), RNG.integers(0, 3, 50)
    values = class_sums(rows, labels, 3, "replace-one", 50, np.ones(50)).values.reshape(3, 5) / GRID
    for label in range(3):
        assert np.allclose(values[label, :-1], rows[labels == label].sum(axis=0), atol=1e-3)
        assert values[label, -1] == (labels == label).sum()


def test_a_label_that_is_no_class_adds_nothing() -> None:
    rows = clip_rows(RNG.normal(size=(4, 3)))
    odd = class_sums(rows, np.array([0, 3, -1, 2**40]), 3, "replace-one", 4, np.ones(4))
    assert np.array_equal(odd.values, class_sums(rows[:1], np.array([0]), 3, "replace-one", 4, np.ones(1)).values)


def told(client: str, counts: list[float], means: np.ndarray, sigma: float, size: int) -> Release:
    values = np.concatenate([np.array(counts)[:, None] * means, np.array(counts)[:, None]], axis=1)
    facts = ("class-embedding", size, 1.0, 1e-5, "replace-one", "opendp", 2.0 * GRID, sigma * GRID, 1 / GRID, False, "")
    return Release(client, *facts, {"values": np.rint(values * GRID).astype(np.int64).ravel()})


def test_pooling_is_least_squares_over_the_clients_that_have_the_class() -> None:
    mine, yours = RNG.normal(size=(2, 4)), RNG.normal(size=(2, 4))
    releases = [told("a", [90.0, 12.0], mine, 3.0, 102), told("b", [5.0, 50.0], yours, 6.0, 50)]
    found = pool(releases, 2)
    # b's 5 records of the first class are below twice its noise: taken for none
    assert np.allclose(found.shares, [[90 / 102, 12 / 102], [0, 1]], atol=1e-6)
    assert np.allclose(found.means[0], mine[0], atol=1e-5)
    a, b = 12 / 3.0, 50 / 6.0
    assert np.allclose(found.means[1], (a**2 * mine[1] + b**2 * yours[1]) / (a**2 + b**2), atol=1e-5)
    assert np.allclose(found.sigma, [3 / 90, 1 / np.sqrt(a**2 + b**2)], atol=1e-6)
    assert np.allclose(found.records, [90, 62], atol=1e-4)


def test_a_client_whose_counts_drown_has_all_classes_alike() -> None:
    found = pool([told("a", [5.0, -3.0, 1.0], RNG.normal(size=(3, 2)), 40.0, 9)], 3)
    assert np.allclose(found.shares, 1 / 3)


def test_sums_count_each_person_once() -> None:
    rng = np.random.default_rng(0)
    rows, labels = unit_rows(rng.normal(size=(7, 3))), rng.integers(0, 3, 7)
    units = Units.of(Records(rows, labels, person=np.array([4, 4, 2, 4, 9, 2, 4])), "person", 3)
    found = class_sums(rows, labels, 3, "replace-one", 3, units.shares).values.reshape(3, 4) / GRID
    for label in range(3):
        mine = (labels == label) * units.shares
        assert np.allclose(found[label], [*(mine @ rows), mine.sum()], atol=1e-5)
