"""A head trained on features that are drawn from a Gaussian for each class, as in
GH-OFL (Turazza et al. 2026).

Clients send counts, sums and second moments of each class, once. The server draws
features from the Gaussians that have these moments and trains a linear head on them, as
if it had the records. Where all classes share one covariance the best such head is the
discriminant; what training adds is that each class has its own. GH-OFL's cosine margin,
its Fisher subspace and its random sketches are not here: `random_features` reduces what
is sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.config.parsing import require
from fedaux.core.rng import numpy_stream, torch_stream
from fedaux.methods.analytic_heads import (
    AnalyticHead,
    FeatureMoments,
    Head,
    Matrix,
    PublicCovariance,
    class_means,
    log_prior,
    shrunk,
    within_covariance,
)

BATCH = 256


@dataclass(frozen=True)
class GaussianHead(AnalyticHead):
    samples: int = 1000  # drawn of each class
    # weight of the covariance common to all classes in that of each
    shared: float = 0.0
    epochs: int = 10
    lr: float = 1e-3  # Adam's

    def __post_init__(self) -> None:
        require(
            min(self.samples, self.epochs) >= 1,
            "method_options.samples and epochs must be 1 or more.",
        )
        require(
            0 <= self.shared <= 1,
            f"method_options.shared must lie from 0 to 1, and is {self.shared}.",
        )
        require(
            self.lr > 0, f"method_options.lr must be greater than 0, and is {self.lr}."
        )

    def head(self, sums: FeatureMoments, covariance: PublicCovariance) -> Head:
        classes, rng = len(sums.counts), numpy_stream(0, "synthetic-features")
        means, factors = class_means(sums), class_factors(sums, self.shared)
        drawn = [
            mean + rng.standard_normal((self.samples, len(mean))) @ factor.T
            for mean, factor in zip(means, factors, strict=True)
        ]
        labels = np.repeat(np.arange(classes), self.samples)
        return with_prior(
            train_head(np.concatenate(drawn), labels, classes, self.epochs, self.lr),
            sums.counts,
        )


def class_factors(sums: FeatureMoments, shared: float) -> list[Matrix]:
    """Return F with F Fᵀ the shrunk covariance of each class; with fewer than two
    records, the common one.

    No client can make it fail: a matrix that is no covariance counts as the nearest one
    that is.
    """
    assert sums.class_moments is not None
    common, factors = within_covariance(sums), list[Matrix]()
    for count, mean, moments in zip(
        sums.counts, class_means(sums), sums.class_moments, strict=True
    ):
        own = (
            common
            if count < 2
            else shrunk(moments / count - np.outer(mean, mean), count)
        )
        values, vectors = np.linalg.eigh((1 - shared) * own + shared * common)
        factors.append(vectors * np.sqrt(np.maximum(values, 0.0)))
    return factors


def with_prior(head: Head, counts: Matrix) -> Head:
    """Add the log-prior to a head that saw all classes equally often."""
    return Head(head.weight, head.bias + log_prior(counts))


def train_head(
    features: NDArray[np.floating],
    labels: NDArray[np.int64],
    classes: int,
    epochs: int,
    lr: float,
) -> Head:
    """Return a linear head trained from zero by Adam on the cross-entropy; the same
    features give the same head.
    """
    import torch
    import torch.nn.functional as F

    x, y = torch.from_numpy(features).float(), torch.from_numpy(labels).long()
    weight, bias = (
        torch.zeros(classes, x.shape[1], requires_grad=True),
        torch.zeros(classes, requires_grad=True),
    )
    optimizer, order = (
        torch.optim.Adam([weight, bias], lr),
        torch_stream(0, "synthetic-batches"),
    )
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x), generator=order), BATCH):
            optimizer.zero_grad()
            F.cross_entropy(F.linear(x[rows], weight, bias), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return Head(weight.detach().double().numpy(), bias.detach().double().numpy())
