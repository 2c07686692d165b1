"""The class scorer against a naive version of its equations, and what pooling is for."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedaux.config.sections import PrivacyConfig
from fedaux.core.messages import Release
from fedaux.privacy.release import release
from fedaux.scoring.base import Reference
from fedaux.scoring.class_embedding import ClassEmbeddingScorer
from fedaux.scoring.class_sums import pool
from fedaux.scoring.density_ratio import BETWEEN_GROUPS

CENTRES = np.random.default_rng(5).normal(size=(4, 10)) * 1.5


def rows_of(rng: np.random.Generator, labels: np.ndarray) -> np.ndarray:
    return (CENTRES[labels] + rng.normal(size=(len(labels), 10))).astype(np.float32)


def cohort(
    epsilon: float, clients: int, size: int = 200, ratio: str = "bayes"
) -> tuple[ClassEmbeddingScorer, dict, Reference, list[Release]]:
    """Client i has classes i and i + 1, nine to one."""
    rng = np.random.default_rng(0)
    scorer = ClassEmbeddingScorer(4, 8, ratio)
    negatives = rows_of(rng, rng.integers(4, size=3000))
    public = scorer.publish(negatives)
    sent = []
    for i in range(clients):
        labels = (i + (rng.random(size) < 0.1)) % 4
        made = scorer.summarise(public, rows_of(rng, labels), labels, "replace-one", size, np.ones(len(labels)))
        sent.append(release(made, f"c{i}", PrivacyConfig(epsilon=epsilon, unsafe_seed=i)))
    return scorer, public, Reference(scorer.embed(public, negatives)), sent


def test_log_odds_are_the_mixture_written_out() -> None:
    scorer, public, reference, sent = cohort(1.0, 5)
    fitted, pooled = scorer.fit(public, reference, sent), pool(sent, 4)
    assert fitted.transform is not None
    total, k = reference.covariance, 8
    between, within = BETWEEN_GROUPS * total, (1 - BETWEEN_GROUPS) * total
    point = reference.rows[17]
    for i, one in enumerate(sent):
        density = 0.0
        for c in range(4):
            noise = pooled.sigma[c] ** 2 * np.eye(k) + within / pooled.records[c]
            gain = between @ np.linalg.inv(between + noise)
            mean = reference.mean + gain @ (pooled.means[c] - reference.mean)
            density += pooled.shares[i, c] * multivariate_normal(mean, within + gain @ noise).pdf(point)
        everywhere = multivariate_normal(reference.mean, total).pdf(point)
        naive = np.log(density / everywhere * 200 / 3000)
        assert fitted.log_odds[one.client](fitted.transform(point[None]))[0] == pytest.approx(naive)


def test_posterior_odds_are_bayes_rule_written_out() -> None:
    """p(c∣x) = p(c) p_c(x) / Σ p(c′) p_c′(x), with Gaussians of one covariance around the means that noise shrinks."""
    scorer, public, reference, sent = cohort(1.0, 5, ratio="posterior")
    fitted, pooled = scorer.fit(public, reference, sent), pool(sent, 4)
    assert fitted.transform is not None
    assert fitted.mixtures is not None
    between, within = BETWEEN_GROUPS * reference.covariance, (1 - BETWEEN_GROUPS) * reference.covariance
    prior = pooled.records / pooled.records.sum()
    point = reference.rows[17]
    joint = []
    for c in range(4):
        noise = pooled.sigma[c] ** 2 * np.eye(8) + within / pooled.records[c]
        mean = reference.mean + between @ np.linalg.inv(between + noise) @ (pooled.means[c] - reference.mean)
        joint.append(prior[c] * multivariate_normal(mean, reference.covariance).pdf(point))
    seen = fitted.transform(point[None])
    for i, one in enumerate(sent):
        ratio = sum(pooled.shares[i, c] * joint[c] / sum(joint) / prior[c] for c in range(4))
        assert fitted.log_odds[one.client](seen)[0] == pytest.approx(np.log(200 / 3000 * ratio), rel=1e-4)
        assert fitted.mixtures[one.client] @ np.exp(seen[0]) == pytest.approx(200 / 3000 * ratio, rel=1e-4)


def right_weight(epsilon: float, clients: int, ratio: str) -> float:
    """Share of the weight on new rows that goes to clients with mostly their class."""
    scorer, public, reference, sent = cohort(epsilon, clients, ratio=ratio)
    rng = np.random.default_rng(9)
    labels = rng.integers(4, size=500)
    fitted = scorer.fit(public, reference, sent)
    assert fitted.transform is not None
    seen = fitted.transform(scorer.embed(public, rows_of(rng, labels)))
    odds = np.exp(np.stack([fitted.log_odds[one.client](seen) for one in sent]))
    own = (np.arange(clients) % 4)[:, None] == labels
    return float(((odds / odds.sum(axis=0)) * own).sum(axis=0).mean())


@pytest.mark.parametrize("ratio", ["bayes", "posterior"])
def test_more_clients_of_a_class_make_it_clearer_and_noise_that_drowns_all_weighs_alike(ratio: str) -> None:
    assert right_weight(100.0, 4, ratio) > 0.7
    assert right_weight(0.3, 4, ratio) + 0.05 < right_weight(0.3, 40, ratio)
    assert right_weight(1e-4, 40, ratio) == pytest.approx(0.25, abs=0.01)
