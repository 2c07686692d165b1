"""Scorers to compare with. None of them protects anybody: they run with
`privacy.unsafe_seed` or not at all.

What they release is not what the scorers they are made of would, so the bounds of those
do not hold: `bound = None`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from fedaux.client.summaries import summarise
from fedaux.client.summaries.logistic import solve
from fedaux.config.sections import PrivacyConfig
from fedaux.core.arrays import Arrays
from fedaux.messages import Release
from fedaux.privacy.mechanism import GRID, Summary, clip_rows
from fedaux.scoring.base import Features, Fitted, Labels, LogOdds, Reference, Shares
from fedaux.scoring.embedding import ClassEmbeddingScorer, embed, public_map
from fedaux.scoring.logistic import LogisticScorer

Vector = NDArray[np.float64]
STEP = 1.0 / GRID
_KEPT: dict[tuple[str, bytes, int, int], Vector] = {}


def _bare(vector: Vector, records: int) -> Summary:
    values = np.rint(vector / STEP).astype(np.int64)
    return Summary(values, STEP, float(GRID), "replace-one", records, bounded=False)


@dataclass(frozen=True)
class Nonprivate(LogisticScorer):
    """The repaired logistic regression without any noise, at a ridge that noise would
    not allow.
    """

    ridge: float = 1e-4
    name: str = "studies.references:logistic_nonprivate"
    bound = None

    def summarise(
        self,
        public: Arrays,
        features: Features,
        labels: Labels,
        adjacency: str,
        size: int,
        shares: Shares,
    ) -> Summary:
        own = self.embed(public, features)
        negatives = clip_rows(public["negatives"])
        return _bare(
            solve(own, shares, negatives, self.ridge, len(own) + len(negatives)), size
        )


def logistic_nonprivate(privacy: PrivacyConfig, classes: int) -> Nonprivate:
    return Nonprivate()


@dataclass(frozen=True)
class Literal(LogisticScorer):
    """The paper to the letter but for the sign of its loss: rows divided by the largest
    norm, private ones included, no centring, λ = 0.1, and the classic Gaussian
    mechanism at the sensitivity it claims, which does not hold.
    """

    epsilon: float = 0.1
    delta: float = 1e-5
    seed: int = 0
    ridge: float = 0.1
    name: str = "studies.references:paper_literal"
    bound = None

    def publish(self, negatives: Features) -> Arrays:
        return {
            "mean": np.zeros(negatives.shape[1], np.float32),
            "radius": np.linalg.norm(negatives, axis=1)
            .max(keepdims=True)
            .astype(np.float32),
            "negatives": np.asarray(negatives, np.float32),
        }

    def summarise(
        self,
        public: Arrays,
        features: Features,
        labels: Labels,
        adjacency: str,
        size: int,
        shares: Shares,
    ) -> Summary:
        own = np.asarray(features, np.float64)
        negatives = np.asarray(public["negatives"], np.float64)
        rows = np.concatenate([own, negatives])
        rows = rows / np.linalg.norm(rows, axis=1).max()
        labels = np.concatenate([np.ones(len(own)), -np.ones(len(negatives))])

        def loss(w: Vector) -> tuple[float, Vector]:
            margins = labels * (rows @ w)
            value = np.logaddexp(0, -margins).mean() + self.ridge / 2 * w @ w
            return float(value), -(labels * expit(-margins)) @ rows / len(
                rows
            ) + self.ridge * w

        w = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B").x
        sigma = (
            np.sqrt(2 * np.log(1.25 / self.delta))
            / self.epsilon
            * 2
            / (self.ridge * len(rows))
        )
        rng = np.random.default_rng([self.seed, len(own), int(abs(own).sum()) % 2**31])
        return _bare(w + rng.normal(0, sigma, w.shape), size)


def paper_literal(privacy: PrivacyConfig, classes: int) -> Literal:
    return Literal(
        epsilon=privacy.epsilon, delta=privacy.delta, seed=max(0, privacy.unsafe_seed)
    )


@dataclass(frozen=True)
class NoiselessClasses(ClassEmbeddingScorer):
    """Class sums without their noise."""

    name: str = "studies.references:class_noiseless"
    bound = None

    def summarise(
        self,
        public: Arrays,
        features: Features,
        labels: Labels,
        adjacency: str,
        size: int,
        shares: Shares,
    ) -> Summary:
        built_in = ClassEmbeddingScorer(self.classes, self.embedding_dim)
        summary = summarise(built_in, public, features, labels, adjacency, size, shares)
        return replace(summary, bounded=False)

    def fit(
        self, public: Arrays, reference: Reference, releases: Sequence[Release]
    ) -> Fitted:
        return super().fit(
            public, reference, [replace(one, scale=0.0) for one in releases]
        )


def class_noiseless(privacy: PrivacyConfig, classes: int) -> NoiselessClasses:
    return NoiselessClasses(classes, privacy.embedding_dim)


@dataclass(frozen=True)
class Kde:
    """A Gaussian kernel density of the client's own records, over one of D⁻: it hands
    the records over.
    """

    embedding_dim: int = 32
    kept: int = 300  # records that speak for a client
    # the best of 0.15, 0.2, 0.25, 0.3 for the ensemble: a reference should be hard to
    # beat
    width: float = 0.2
    name: str = "studies.references:kde"
    bound = None

    def size(self, public: Arrays) -> int:
        return self.kept * int(public["basis"].shape[1])

    def publish(self, negatives: Features) -> Arrays:
        mean, basis = public_map(negatives, self.embedding_dim)
        return {"mean": mean.astype(np.float32), "basis": basis.astype(np.float32)}

    def embed(self, public: Arrays, features: Features) -> Features:
        return embed(public, features)

    def summarise(
        self,
        public: Arrays,
        features: Features,
        labels: Labels,
        adjacency: str,
        size: int,
        shares: Shares,
    ) -> Summary:
        rows = self.embed(public, features)
        return _bare(rows[np.arange(self.kept) % len(rows)].ravel(), size)

    def fit(
        self, public: Arrays, reference: Reference, releases: Sequence[Release]
    ) -> Fitted:
        return Fitted({one.client: self._odds(reference, one) for one in releases})

    def _odds(self, reference: Reference, release: Release) -> LogOdds:
        own = (release.arrays["values"] * release.step).reshape(self.kept, -1)
        public_rows = reference.rows[:: max(1, len(reference.rows) // 1000)]
        offset = np.log(release.records / len(reference.rows))

        def odds(rows: Features) -> Vector:
            """Slow, and the same in every round: kept by where the rows are."""
            key = (
                release.client,
                release.arrays["values"].tobytes()[:4096],
                rows.ctypes.data,
                len(rows),
            )
            if key not in _KEPT:
                if len(_KEPT) > 500:
                    _KEPT.clear()
                found = _log_density(rows, own, self.width) - _log_density(
                    rows, public_rows, self.width
                )
                _KEPT[key] = found + offset
            return _KEPT[key]

        return odds


def _log_density(rows: Vector, centres: Vector, width: float) -> Vector:
    squares = (rows**2).sum(1)[:, None] + (centres**2).sum(1) - 2 * rows @ centres.T
    return np.asarray(
        logsumexp(-squares / (2 * width**2), axis=1) - np.log(len(centres))
    )


def kde(privacy: PrivacyConfig, classes: int) -> Kde:
    return Kde(privacy.embedding_dim)
