"""Label-free measures against naive versions and known cases; the linear probe against scikit-learn's pipeline."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedaux.data.records import Records
from fedaux.pretraining.metrics import feature_quality, linear_probe


def test_against_naive_loops() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    one, two = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second))
    found = feature_quality(torch.tensor(first), torch.tensor(second))
    assert found.alignment == pytest.approx(np.mean([np.sum((a - b) ** 2) for a, b in zip(one, two, strict=True)]))
    pairs = [np.exp(-2 * np.sum((one[i] - one[j]) ** 2)) for i in range(9) for j in range(i)]
    assert found.uniformity == pytest.approx(np.log(np.mean(pairs)))


def test_known_cases() -> None:
    same = torch.ones(8, 3)
    assert feature_quality(same, same).alignment == pytest.approx(0.0)
    assert feature_quality(same, same).uniformity == pytest.approx(0.0)
    rows = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0))
    assert feature_quality(rows, rows).rank == pytest.approx(5.0, abs=0.05)
    flat = rows * torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])
    assert feature_quality(flat, flat).rank == pytest.approx(2.0, abs=0.05)


def blobs(seed: int, count: int = 300) -> Records:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    rows = rng.normal(size=(count, 5)) + 1.5 * np.eye(5)[labels]
    rows *= np.array([1.0, 100.0, 0.01, 1.0, 1.0])  # scales that only standardising makes comparable
    rows[:, 4] = 7.0  # a constant column must not divide by nothing
    return Records(rows.astype(np.float32), labels)


def test_the_probe_agrees_with_scikit_learns_own_pipeline() -> None:
    train, test = blobs(0), blobs(1)
    theirs = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(train.gather(), train.labels)
    assert linear_probe(train, test) == pytest.approx(theirs.score(test.gather(), test.labels), abs=0.011)
    assert linear_probe(train, test) > 0.7


def test_the_probed_records_stay_as_they_were() -> None:
    train, test = blobs(0), blobs(1)
    before = train.gather().copy(), test.gather().copy()
    linear_probe(train, test)
    assert np.array_equal(train.gather(), before[0])
    assert np.array_equal(test.gather(), before[1])


def test_images_are_flattened_and_labels_that_say_nothing_give_chance() -> None:
    rng = np.random.default_rng(0)
    parts = [Records(rng.integers(0, 256, (400, 2, 2, 1), dtype=np.uint8), rng.integers(0, 2, 400)) for _ in range(2)]
    assert 0.4 < linear_probe(*parts) < 0.6
