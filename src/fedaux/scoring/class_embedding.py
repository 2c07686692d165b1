"""The default scorer: private sums of φ per class, pooled over the clients that share a class.

A record has one class, so all sums and counts of a client cost what one sum costs. The density of a class is estimated
from all releases, and only the mixture of classes from a client's own: with n clients of a class, the noise on its mean
falls by √n. Labels are covered by the release as everything else is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, logsumexp

from fedaux.core.messages import Arrays, Release
from fedaux.privacy.clipping import Bound
from fedaux.privacy.release import Summary
from fedaux.scoring import embedding
from fedaux.scoring.base import Features, Fit, Fitted, Labels, LogOdds, Moments, Reference, Shares, Transform, Vector
from fedaux.scoring.class_sums import Pooled, class_sums, pool, sums_bound
from fedaux.scoring.density_ratio import public_density


@dataclass(frozen=True)
class ClassEmbeddingScorer:
    classes: int
    embedding_dim: int = 32
    ratio: str = "bayes"
    name: str = "class-embedding"

    def publish(self, negatives: Features) -> Arrays:
        return embedding.publish(negatives, self.embedding_dim)

    def size(self, public: Arrays) -> int:
        return self.classes * (int(public["basis"].shape[1]) + 1)

    def embed(self, public: Arrays, features: Features) -> Vector:
        return embedding.embed(public, features)

    def summarise(
        self, public: Arrays, features: Features, labels: Labels, adjacency: str, size: int, shares: Shares
    ) -> Summary:
        embedded = embedding.embed_per_record(public, features)
        return class_sums(embedded, labels, self.classes, adjacency, size, shares)

    def bound(self, public: Arrays, adjacency: str, size: int) -> Bound:
        return sums_bound(adjacency, size)

    def fit(self, public: Arrays, reference: Reference, releases: Sequence[Release]) -> Fitted:
        """log D_i(x)/D⁻(x) = log |D_i|/|D⁻| Σ_c π_ic r_c(x).

        Of the ratio "bayes" r_c = p_c(x)/p(x), p_c the predictive Gaussian under the pooled noise and p that of D⁻; of
        "posterior" r_c = p(c∣x)/p(c), from a discriminant head. By Bayes' rule that is p_c(x) over the density of all
        classes together, with one covariance for all: what classes share cancels between teachers.
        """
        return self.from_arrays(*self.fit_arrays(public, reference, releases))

    def fit_arrays(self, public: Arrays, reference: Reference, releases: Sequence[Release]) -> Fit:
        """Shared: the pooled classes and the moments of D⁻, or a head. Own: class shares π_i, and log |D_i|/|D⁻|."""
        pooled, count = pool(releases, self.classes), len(reference.rows)
        if self.ratio == "posterior":
            weights, bias = pooled.discriminant(reference)
            shared = {"weights": weights, "bias": bias, "log_priors": pooled.log_priors}
        else:
            shared = {"means": pooled.means, "sigma": pooled.sigma, "records": pooled.records}
            shared |= {"centre": reference.mean, "covariance": reference.covariance}
        each = zip(releases, pooled.shares, strict=True)
        return shared, {r.client: {"shares": shares, "offset": np.log([r.records / count])} for r, shares in each}

    def from_arrays(self, shared: Arrays, own: Mapping[str, Arrays]) -> Fitted:
        """What is shared says which ratio it is of."""
        transform = posterior_ratios(shared) if "log_priors" in shared else density_ratios(shared)

        def log_odds(shares: Vector, offset: Vector) -> LogOdds:
            present = shares > 0
            return lambda ratios: logsumexp(ratios[:, present], axis=1, b=shares[present]) + offset

        return Fitted(
            {client: log_odds(arrays["shares"], arrays["offset"]) for client, arrays in own.items()},
            transform,
            {client: arrays["shares"] * np.exp(arrays["offset"]) for client, arrays in own.items()},
        )


def density_ratios(shared: Arrays) -> Transform:
    """(B, k) → (B, C), log p_c(x)/p(x)."""
    moments = Moments(shared["centre"], shared["covariance"])
    pooled = Pooled(shared["means"], shared["sigma"], shared["records"], np.zeros((0, len(shared["means"]))))
    densities, public_rows = pooled.densities(moments), public_density(moments)

    def transform(embedded: Features) -> Vector:
        ratios = [np.atleast_1d(density.logpdf(embedded)) for density in densities]
        return np.asarray(np.stack(ratios, axis=1) - np.atleast_1d(public_rows.logpdf(embedded))[:, None])

    return transform


def posterior_ratios(shared: Arrays) -> Transform:
    """(B, k) → (B, C), log p(c∣x)/p(c)."""
    weights, bias, log_priors = shared["weights"], shared["bias"], shared["log_priors"]
    return lambda embedded: np.asarray(log_softmax(embedded @ weights.T + bias, axis=1) - log_priors)
