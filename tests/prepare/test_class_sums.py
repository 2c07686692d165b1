"""The head from class sums: its sensitivity is what is claimed, and it is linear discriminant analysis."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fedaux.config import PrivacyConfig
from fedaux.exchange import Release
from fedaux.prepare.class_sums import class_sums, discriminant_head
from fedaux.prepare.mean_embedding import MeanEmbeddingScorer
from fedaux.prepare.scoring import Reference
from fedaux.privacy.bounded import GRID, clip_rows
from fedaux.privacy.release import release
from fedaux.prototypes import linear_head, load

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_no_record_moves_the_sums_further_than_claimed(adjacency: str) -> None:
    worst = 0.0
    for _ in range(3000):
        rows = clip_rows(RNG.normal(size=(4, 3)) * 10 ** RNG.uniform(-2, 2))
        labels = RNG.integers(0, 3, 4)
        one = class_sums(rows, labels, 3, adjacency, 4)
        if adjacency == "add-remove":
            two = class_sums(rows[1:], labels[1:], 3, adjacency, 4)
        else:
            rows, labels = rows.copy(), labels.copy()
            rows[0], labels[0] = -rows[0] / max(np.linalg.norm(rows[0]), 1e-9), RNG.integers(3)
            two = class_sums(rows, labels, 3, adjacency, 4)
        assert (one.sensitivity, one.step) == (two.sensitivity, two.step)
        worst = max(worst, float(np.linalg.norm((one.values - two.values).astype(float))) / one.sensitivity)
    assert 0.95 < worst <= 1.0


def test_sums_and_counts_are_what_they_are_called() -> None:
    rows, labels = clip_rows(RNG.normal(size=(50, 4))), RNG.integers(0, 3, 50)
    values = class_sums(rows, labels, 3, "replace-one", 50).values.reshape(3, 5) / GRID
    for label in range(3):
        assert np.allclose(values[label, :-1], rows[labels == label].sum(axis=0), atol=1e-3)
        assert values[label, -1] == (labels == label).sum()


def data(clients: int) -> tuple[MeanEmbeddingScorer, dict, Reference, np.ndarray, np.ndarray, list[np.ndarray]]:
    """Three classes of features; each client holds one class."""
    labels = RNG.integers(0, 3, 6000)
    features = (RNG.normal(size=(6000, 8)) + 2.5 * np.eye(8)[labels]).astype(np.float32)
    scorer = MeanEmbeddingScorer(6)
    public = scorer.publish(features[:1000])
    reference = Reference(scorer.embed(public, features[:1000]))
    parts = [1000 + np.flatnonzero(labels[1000:4000] == i % 3)[i // 3 :: clients // 3] for i in range(clients)]
    return scorer, public, reference, features, labels, parts


def releases(epsilon: float, clients: int = 9) -> tuple[float, float]:
    """(accuracy of the head, accuracy of scikit-learn's on the pooled records)."""
    scorer, public, reference, features, labels, parts = data(clients)
    privacy = PrivacyConfig(epsilon=epsilon)
    made: list[Release] = []
    for i, part in enumerate(parts):
        summary = class_sums(scorer.embed(public, features[part]), labels[part], 3, "replace-one", len(part))
        made.append(release(summary, str(i), privacy))
    head = linear_head(8, 3)
    load(head, discriminant_head(public, reference, made, 3))
    with torch.no_grad():
        found = head(torch.from_numpy(features[4000:])).argmax(dim=1).numpy()
    pooled = np.concatenate(parts)
    best = LinearDiscriminantAnalysis().fit(features[pooled], labels[pooled]).score(features[4000:], labels[4000:])
    return float((found == labels[4000:]).mean()), float(best)


def test_with_ample_budget_it_is_the_pooled_discriminant() -> None:
    ours, best = releases(100.0)
    assert ours > best - 0.02
    assert best > 0.9


def test_with_little_budget_it_is_worse_and_with_none_it_is_chance() -> None:
    assert releases(1.0)[0] > 0.8
    assert releases(0.001)[0] < 0.7
