"""The scorer we lead with: a private mean of public features, then a density ratio that costs no further privacy.

On public data: centre, PCA, half-whitening and one scale, all from features of D⁻. Each record's φ has norm at most 1,
so exchanging one record moves the sum of φ by at most 2, whatever the record is; that is the whole proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.exchange import Arrays, Release
from fedaux.prepare.ratios import RATIOS
from fedaux.prepare.scoring import Features, LogOdds, Reference, check_shapes
from fedaux.privacy.bounded import GRID, REACH, clip_rows, to_steps
from fedaux.privacy.release import Summary

Vector = NDArray[np.float64]
_BLOCK = 2**13  # rows of D⁻ at a time: they are held as they come, never all of them in double precision


@dataclass(frozen=True)
class MeanEmbeddingScorer:
    dims: int = 32
    ratio: str = "bayes"
    name: str = "mean-embedding"

    def publish(self, negatives: Features) -> Arrays:
        mean, basis = public_map(negatives, self.dims)
        return {"mean": mean.astype(np.float32), "basis": basis.astype(np.float32)}

    def size(self, public: Arrays) -> int:
        return int(public["basis"].shape[1])

    def embed(self, public: Arrays, features: Features) -> Vector:
        check_shapes(public, mean=(features.shape[1],), basis=(features.shape[1], public["basis"].shape[1]))
        return clip_rows((np.asarray(features, np.float64) - public["mean"]) @ public["basis"].astype(np.float64))

    def summarise(self, public: Arrays, features: Features, adjacency: str, size: int) -> Summary:
        return mean_embedding(self.embed(public, features), adjacency, size)

    def fit(self, public: Arrays, reference: Reference, release: Release) -> LogOdds:
        mean = release.arrays["values"] * release.step
        return RATIOS[self.ratio](mean, reference, release.scale * release.step, release.records)


def public_map(negatives: Features, dims: int) -> tuple[Vector, Vector]:
    """(μ, B) such that (h − μ) B is the half-whitened PCA of h, scaled so that nine rows of D⁻ in ten keep norm ≤ 1.

    Half-whitening divides a direction of variance v by v^¼: it lifts the faint directions, in which classes differ,
    without giving the noise of the faintest the same voice.
    """
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(negatives), _BLOCK)]
    mean = negatives.mean(axis=0, dtype=np.float64)
    covariance = sum((negatives[rows] - mean).T @ (negatives[rows] - mean) for rows in blocks) / len(negatives)
    variances, directions = np.linalg.eigh(covariance)
    keep = np.argsort(variances)[::-1][: min(dims, len(negatives) - 1)]
    keep = keep[variances[keep] > 1e-9 * variances.max(initial=1e-30)]
    if keep.size == 0:
        raise ValueError(
            "all features of the negatives are equal: there is nothing to score with; check the auxiliary data"
        )
    basis = directions[:, keep] * variances[keep] ** -0.25
    norms = np.concatenate([np.linalg.norm((negatives[rows] - mean) @ basis, axis=1) for rows in blocks])
    return mean, basis / np.quantile(norms, 0.9)


def mean_embedding(embedded: Vector, adjacency: str, size: int) -> Summary:
    """Σ φ(x) over D_i in exact integers."""
    return Summary(
        values=to_steps(embedded).sum(axis=0),
        step=1.0 / (GRID * size),
        sensitivity=float(GRID * REACH[adjacency]),
        adjacency=adjacency,
        records=size,
    )
