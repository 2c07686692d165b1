"""The head from class sums is linear discriminant analysis."""

import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from fedaux.config.sections import PrivacyConfig
from fedaux.core.messages import Release
from fedaux.models import linear_head
from fedaux.privacy.release import release
from fedaux.scoring.base import Reference
from fedaux.scoring.class_embedding import ClassEmbeddingScorer
from fedaux.scoring.class_sums import pool
from fedaux.scoring.closed_form import discriminant_head, set_head

RNG = np.random.default_rng(0)


def data(clients: int) -> tuple[ClassEmbeddingScorer, dict, Reference, np.ndarray, np.ndarray, list[np.ndarray]]:
    """Three classes of features; each client holds one class."""
    labels = RNG.integers(0, 3, 6000)
    features = (RNG.normal(size=(6000, 8)) + 2.5 * np.eye(8)[labels]).astype(np.float32)
    scorer = ClassEmbeddingScorer(3, 6)
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
        summary = scorer.summarise(public, features[part], labels[part], "replace-one", len(part), np.ones(len(part)))
        made.append(release(summary, str(i), privacy))
    head = linear_head(8, 3)
    set_head(head, *discriminant_head(public, reference, pool(made, 3)))
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
    drowned = [releases(0.001)[0] for _ in range(15)]  # a random head: now and then one is right by luck
    assert np.median(drowned) < 0.6
