"""The linear probe is a logistic regression on standardised rows."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedaux.data.records import Records
from fedaux.pretraining.probe import linear_probe


def blobs(seed: int, count: int = 300) -> Records:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    rows = rng.normal(size=(count, 5)) + 1.5 * np.eye(5)[labels]
    rows *= np.array([1.0, 100.0, 0.01, 1.0, 1.0])  # scales that only standardising makes comparable
    rows[:, 4] = 7.0  # a constant column must not divide by nothing
    return Records(rows.astype(np.float32), labels)


def test_it_agrees_with_scikit_learns_own_pipeline() -> None:
    train, test = blobs(0), blobs(1)
    theirs = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(train.gather(), train.labels)
    assert linear_probe(train, test) == pytest.approx(theirs.score(test.gather(), test.labels), abs=0.011)
    assert linear_probe(train, test) > 0.7


def test_the_records_stay_as_they_were() -> None:
    train, test = blobs(0), blobs(1)
    before = train.gather().copy(), test.gather().copy()
    linear_probe(train, test)
    assert np.array_equal(train.gather(), before[0])
    assert np.array_equal(test.gather(), before[1])


def test_images_are_flattened_and_labels_that_say_nothing_give_chance() -> None:
    rng = np.random.default_rng(0)
    parts = [Records(rng.integers(0, 256, (400, 2, 2, 1), dtype=np.uint8), rng.integers(0, 2, 400)) for _ in range(2)]
    assert 0.4 < linear_probe(*parts) < 0.6
