"""Linear discriminant analysis against Bayes' rule, written out."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedaux.scoring.discriminant import linear_discriminant

RNG = np.random.default_rng(0)
CLASSES, WIDTH = 4, 6


def problem(decay: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(means, covariance, log priors); the covariance's eigenvalues fall to `decay`."""
    rotation = np.linalg.qr(RNG.normal(size=(WIDTH, WIDTH)))[0]
    covariance = (rotation * np.geomspace(1.0, decay, WIDTH)) @ rotation.T
    return RNG.normal(size=(CLASSES, WIDTH)), (covariance + covariance.T) / 2, np.log(RNG.dirichlet(np.ones(CLASSES)))


def test_it_is_bayes_rule_for_gaussians_of_one_covariance() -> None:
    means, covariance, log_priors = problem(0.1)
    weights, bias = linear_discriminant(means, covariance, log_priors)
    for x in RNG.normal(size=(20, WIDTH)):
        joint = [log_priors[c] + multivariate_normal(means[c], covariance).logpdf(x) for c in range(CLASSES)]
        posterior = np.exp(joint - np.logaddexp.reduce(joint))
        logits = weights @ x + bias
        assert np.exp(logits - np.logaddexp.reduce(logits)) == pytest.approx(posterior, rel=1e-9)


def test_with_one_width_for_all_it_is_the_nearest_mean() -> None:
    means = RNG.normal(size=(CLASSES, WIDTH))
    weights, bias = linear_discriminant(means, 2.0 * np.eye(WIDTH), np.zeros(CLASSES))
    for x in RNG.normal(size=(50, WIDTH)):
        assert np.argmax(weights @ x + bias) == np.argmin([np.linalg.norm(x - mean) for mean in means])


@pytest.mark.parametrize("decay", [1.0, 1e-3, 1e-6])
def test_it_is_the_head_of_an_inverse(decay: float) -> None:
    """1e-6 is the narrowest direction that `Pooled.discriminant` leaves in a covariance."""
    means, covariance, log_priors = problem(decay)
    weights, bias = linear_discriminant(means, covariance, log_priors)
    inverse = np.linalg.inv(covariance)
    scale = np.abs(inverse @ means.T).max()
    assert np.abs(weights - means @ inverse).max() < 1e-9 * scale
    for c, mean in enumerate(means):
        assert bias[c] == pytest.approx(log_priors[c] - mean @ inverse @ mean / 2, rel=1e-9)
