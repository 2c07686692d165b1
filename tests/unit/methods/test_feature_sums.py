"""Sums of features: those of the pooled records, whoever holds which of them, to the bit in any order."""

from itertools import permutations

import numpy as np
import pytest
import torch

from fedaux.data.records import Records
from fedaux.methods.feature_sums import SUM_BITS, FeatureSums, Moments, sums_shapes
from fedaux.models import HeadFeatures
from fedaux.models.registry import standardisation

WIDTH, CLASSES = 5, 4
RNG = np.random.default_rng(0)
RECORDS = Records(
    (RNG.normal(size=(3000, WIDTH)) * 3 + 1).astype(np.float32), RNG.integers(CLASSES - 1, size=3000)
)  # nobody has the last class


def mapped(random: int = 0) -> HeadFeatures:
    features = HeadFeatures(WIDTH, random)
    features.standardise(standardisation(RECORDS.x))
    return features


def parts(records: Records) -> list[Records]:
    return [records.take(np.flatnonzero(records.labels == label)) for label in range(CLASSES - 1)]


@pytest.mark.parametrize("random", [0, 12])
def test_they_are_sums_over_records(random: int) -> None:
    features = mapped(random)
    sums = Moments.of(features, RECORDS, CLASSES, second=True)
    rows = features(torch.from_numpy(RECORDS.x)).double().numpy()
    assert np.allclose(sums.moments, sum(np.outer(row, row) for row in rows))
    for label in range(CLASSES):
        assert np.allclose(sums.class_sums[label], rows[RECORDS.labels == label].sum(axis=0))
        assert sums.counts[label] == (RECORDS.labels == label).sum()
    assert sums.records == 3000
    assert np.allclose(sums.mean, rows.mean(axis=0))


@pytest.mark.parametrize("second", [True, False])
def test_clients_add_up_to_the_pool(second: bool) -> None:
    whole = Moments.of(mapped(), RECORDS, CLASSES, second)
    each = [FeatureSums.of(Moments.of(mapped(), part, CLASSES, second)) for part in parts(RECORDS)]
    totals = [(a + b + c).to_arrays() for a, b, c in permutations(each)]
    for total in totals:
        assert {name: array.tobytes() for name, array in total.items()} == {
            name: array.tobytes() for name, array in totals[0].items()
        }
    found = FeatureSums.from_arrays(totals[0]).value()
    assert (found.moments is None) is not second
    for name in ("class_sums", "counts", "moments") if second else ("class_sums", "counts"):
        assert np.allclose(getattr(found, name), getattr(whole, name), rtol=0, atol=2 * 2.0**-SUM_BITS)
    assert {name: array.shape for name, array in totals[0].items()} == sums_shapes(CLASSES, WIDTH, second)


def test_what_was_added_is_left_as_it_was() -> None:
    one = FeatureSums.of(Moments.of(mapped(), RECORDS, CLASSES, True))
    before = {name: array.copy() for name, array in one.to_arrays().items()}
    _ = one + one
    assert all(np.array_equal(array, before[name]) for name, array in one.to_arrays().items())


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_what_cannot_be_summed_raises(value: float) -> None:
    bad = RECORDS.x.copy()
    bad[7, 1] = value
    with pytest.raises(ValueError, match="refused"):
        FeatureSums.of(Moments.of(HeadFeatures(WIDTH), Records(bad, RECORDS.y), CLASSES, True))
