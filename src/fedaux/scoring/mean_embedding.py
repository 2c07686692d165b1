"""A scorer without labels: a private mean of φ, then a density ratio by post-processing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedaux.core.messages import Arrays, Release
from fedaux.privacy.clipping import GRID, UNIT_SENSITIVITY, Bound, quantize
from fedaux.privacy.release import Summary
from fedaux.scoring import embedding
from fedaux.scoring.base import Features, Fit, Fitted, Labels, Moments, Reference, Shares, Vector
from fedaux.scoring.density_ratio import RATIOS


@dataclass(frozen=True)
class MeanEmbeddingScorer:
    embedding_dim: int = 32
    ratio: str = "bayes"
    name: str = "mean-embedding"

    def publish(self, negatives: Features) -> Arrays:
        return embedding.publish(negatives, self.embedding_dim)

    def size(self, public: Arrays) -> int:
        return int(public["basis"].shape[1])

    def embed(self, public: Arrays, features: Features) -> Vector:
        return embedding.embed(public, features)

    def summarise(
        self, public: Arrays, features: Features, labels: Labels, adjacency: str, size: int, shares: Shares
    ) -> Summary:
        return mean_embedding(embedding.embed_per_record(public, features), adjacency, size, shares)

    def bound(self, public: Arrays, adjacency: str, size: int) -> Bound:
        return mean_bound(adjacency, size)

    def fit(self, public: Arrays, reference: Reference, releases: Sequence[Release]) -> Fitted:
        return self.from_arrays(*self.fit_arrays(public, reference, releases))

    def fit_arrays(self, public: Arrays, reference: Reference, releases: Sequence[Release]) -> Fit:
        """Shared: the moments of D⁻. Own: what `RATIOS` makes of the client's release."""
        fit, shared = RATIOS[self.ratio][0], {"centre": reference.mean, "covariance": reference.covariance}
        return shared, {
            r.client: fit(r.arrays["values"] * r.step, reference, r.scale * r.step, r.records) for r in releases
        }

    def from_arrays(self, shared: Arrays, own: Mapping[str, Arrays]) -> Fitted:
        moments = Moments(shared["centre"], shared["covariance"])
        return Fitted({client: RATIOS[self.ratio][1](arrays, moments) for client, arrays in own.items()})


def mean_embedding(embedded: Vector, adjacency: str, size: int, shares: Shares) -> Summary:
    """Σ share·φ(x) over D_i in exact integers: a mean over units of the mean over each unit's records."""
    bound = mean_bound(adjacency, size)
    return Summary(quantize(embedded, shares).sum(axis=0), bound.step, bound.sensitivity, adjacency, size)


def mean_bound(adjacency: str, size: int) -> Bound:
    """A record of share s adds a vector of norm at most ⌊s·GRID⌋, so a unit one of norm at most GRID."""
    return Bound(
        norm=float(GRID * size), step=1.0 / (GRID * size), sensitivity=float(GRID * UNIT_SENSITIVITY[adjacency])
    )
