"""Linear discriminant analysis: classes that are Gaussian with one covariance have a linear classifier."""

from __future__ import annotations

from scipy.linalg import solve

from fedaux.scoring.base import Vector


def linear_discriminant(means: Vector, covariance: Vector, log_priors: Vector) -> tuple[Vector, Vector]:
    """(weights (C, k), biases (C,)) of log p(c∣x), up to what all classes share.

    x of class c is N(mean_c, Σ), so w_c = Σ⁻¹ mean_c and b_c = log p(c) − ½ w_c·mean_c. Σ must be positive definite.
    """
    weights = solve(covariance, means.T, assume_a="pos").T
    return weights, log_priors - 0.5 * (weights * means).sum(axis=1)
