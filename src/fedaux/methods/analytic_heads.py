"""Heads in closed form from sums over the clients' features: no training, and the same
whatever the split.

    ridge          W = argmin Σ ‖y − Wψ − b‖² + λ‖W‖², one-hot y: Fed3R (Fanì et al.
                   2024), AFL (He et al. 2025)
    discriminant   Gaussians of one covariance, that of all clients' records within
                   classes: FedCGS (Guan et al. 2025)
    class means    the same with the covariance of public features, so clients send no
                   second moments, or with
                   none, which is the nearest class mean: FedNCM (Legate et al. 2023)

All clients' sums are those of the pooled records, so each head is the one that central
data would give. They are exact, like every contribution. Nothing protects them: the sum
of a class with one record is that record's features.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import numpy as np

from fedaux.config.methods import find_method
from fedaux.config.parsing import require, require_choice
from fedaux.core.arrays import Arrays, Matrix
from fedaux.methods.contribution import FixedSum
from fedaux.methods.hooks import Hooks, hooks_of

if TYPE_CHECKING:  # PyTorch, which a method's name must not wait for
    from fedaux.config.schema import Config


# λ per record, in units of the features' mean variance
PENALTIES = np.logspace(-6, 2, 65)
SUM_BITS = 26  # 1.5e-8 a step; room for sums up to 7e10

PublicCovariance = Callable[[], Matrix]  # of ψ over D⁻, (D, D)


class Head(NamedTuple):
    """A linear head on ψ, in the scale of logits."""

    weight: Matrix  # (C, D)
    bias: Matrix  # (C,)


class AnalyticHead(Hooks):
    """A method that computes its head, from what `Method.sends` names. Its fields are
    options, as in any hooks.
    """

    computes_head = True

    @abstractmethod
    def head(self, sums: FeatureMoments, covariance: PublicCovariance) -> Head:
        """Compute the head from the sums of what all clients have sent."""


def analytic_hooks(config: Config) -> AnalyticHead:
    """Return the hooks of the method whose head is computed: the run's own, or the one
    that training starts from.
    """
    if find_method(config.method).analytic:
        hooks = hooks_of(config.method, dict(config.method_options))
    else:
        hooks = hooks_of(config.head_start, {})
    return cast(AnalyticHead, hooks)


@dataclass(frozen=True)
class Ridge(AnalyticHead):
    penalty: float = 0.0  # λ per record; 0: by generalised cross-validation

    def __post_init__(self) -> None:
        require(
            self.penalty >= 0,
            "Cannot use these settings: method_options.penalty must not be negative, "
            f"and is {self.penalty}. Correct it.",
        )

    def head(self, sums: FeatureMoments, covariance: PublicCovariance) -> Head:
        return ridge_head(sums, self.penalty or None)


@dataclass(frozen=True)
class Discriminant(AnalyticHead):
    def head(self, sums: FeatureMoments, covariance: PublicCovariance) -> Head:
        return discriminant_head(sums, within_covariance(sums))


@dataclass(frozen=True)
class ClassMeans(AnalyticHead):
    # of a class: that of D⁻'s features; or identity: the nearest class mean
    covariance: str = "public"

    def __post_init__(self) -> None:
        require_choice(
            "method_options.covariance", self.covariance, ("public", "identity")
        )

    def head(self, sums: FeatureMoments, covariance: PublicCovariance) -> Head:
        if self.covariance == "public":
            return discriminant_head(sums, covariance())
        return nearest_mean_head(sums)


def ridge_head(sums: FeatureMoments, penalty: float | None = None) -> Head:
    """`penalty` is λ per record. Without one it is that of the least generalised
    cross-validation error,

        GCV(λ) = RSS(λ) / (n − df(λ))²,  df = 1 + Σ v/(v + λ),

    which follows from the sums: v are the eigenvalues of the centred second moments.
    The bias is not penalised. Predictions estimate one-hot labels; divided by the
    variance of their error they are the logits of a posterior.
    """
    assert sums.moments is not None
    n = sums.records
    mean = sums.mean
    centred = sums.moments - n * np.outer(mean, mean)
    values, vectors = np.linalg.eigh(centred)
    values = np.maximum(values, 0.0)
    targets = vectors.T @ (sums.class_sums.T - np.outer(mean, sums.counts))  # (D, C)
    squares = np.square(targets).sum(axis=1)
    total = n - np.square(sums.counts).sum() / n

    def errors(lam: float) -> tuple[float, float]:
        """(RSS, n − df)"""
        penalised = values + lam
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = squares * (values + 2 * lam) / np.square(penalised)
            shares = values / penalised
        # a direction without variance and without penalty explains nothing
        explains = penalised > 0
        explained = np.where(explains, fits, 0.0).sum()
        degrees = 1 + np.where(explains, shares, 0.0).sum()
        rss = max(float(total - explained), 1e-12 * total)
        return rss, float(max(n - degrees, 1e-6 * n))

    if penalty is None:
        grid = PENALTIES * max(float(values.mean()), 1e-12)
        residuals = np.array([errors(lam) for lam in grid])
        gcv = residuals[:, 0] / np.square(residuals[:, 1])
        lam = float(grid[np.argmin(gcv)])
    else:
        lam = penalty * n
    residual, freedom = errors(lam)
    variance = max(residual / freedom / len(sums.counts), 1e-6)
    weight = (vectors @ (targets / (values + lam)[:, None])).T
    bias = sums.counts / n - weight @ mean
    return Head(weight / variance, bias / variance)


def discriminant_head(sums: FeatureMoments, covariance: Matrix) -> Head:
    """The posterior under a Gaussian for each class, all of this covariance."""
    # with PyTorch, which a method's name must not wait for
    from fedaux.scoring.embedding import linear_discriminant

    means = class_means(sums)
    weight, bias = linear_discriminant(means, covariance, log_prior(sums.counts))
    return Head(weight, bias)


def nearest_mean_head(sums: FeatureMoments) -> Head:
    """argmin_c ‖ψ − mean_c‖, in units of the mean squared distance between class means
    and their mean.
    """
    means = class_means(sums)
    distances = np.square(means - means.mean(axis=0)).sum(axis=1)
    scale = max(float(distances.mean()), 1e-12)
    bias = -0.5 * np.square(means).sum(axis=1) / scale
    return Head(means / scale, bias)


def class_means(sums: FeatureMoments) -> Matrix:
    """Return the mean of each class, (C, D). A class without records gets the mean of
    all records.
    """
    counts = sums.counts[:, None]
    means = sums.class_sums / np.maximum(counts, 1.0)
    return np.where(counts > 0, means, sums.mean)


def log_prior(counts: Matrix) -> Matrix:
    """Return the log-prior of each class, with one extra record per class so that none
    is impossible.
    """
    records = counts.sum() + len(counts)
    return np.asarray(np.log((counts + 1) / records))


def within_covariance(sums: FeatureMoments) -> Matrix:
    """Return the shrunk covariance of records around the mean of their class."""
    assert sums.moments is not None
    means = class_means(sums)
    scatter = sums.moments - (means.T * sums.counts) @ means
    return shrunk(scatter / sums.records, sums.records)


def shrunk(covariance: Matrix, records: float) -> Matrix:
    """Shrink a covariance towards the identity by the oracle approximating rule (Chen
    et al. 2010).
    """
    width = len(covariance)
    scale = np.trace(covariance) / width
    squares = np.square(covariance).sum()
    spread = (records + 1 - 2 / width) * (squares - width * scale**2)
    if spread <= 0:
        share = 1.0
    else:
        error = (1 - 2 / width) * squares + (width * scale) ** 2
        share = min(1.0, error / spread)
    share = max(share, 1e-6)
    identity = np.eye(width)
    return np.asarray((1 - share) * covariance + share * max(scale, 1e-12) * identity)


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """The sums as real numbers."""

    class_sums: Matrix  # Σ ψ over the records of each class, (C, D)
    counts: Matrix  # of each class, (C,)
    moments: Matrix | None = None  # Σ ψψᵀ over all records, (D, D)

    @property
    def records(self) -> float:
        return float(self.counts.sum())

    @property
    def mean(self) -> Matrix:
        """The mean of ψ over all records, (D,)."""
        return np.asarray(self.class_sums.sum(axis=0) / self.records)


@dataclass(frozen=True, eq=False)
class FeatureSums:
    """`FeatureMoments` in integer steps, of any number of clients. The symmetric
    `moments` keep the upper triangle.
    """

    # class_sums, counts and, where asked for, moments
    sums: dict[str, FixedSum]

    @classmethod
    def of(cls, moments: FeatureMoments) -> Self:
        """Convert moments to integer steps; raise an error if any value is not finite
        or far too large.
        """
        terms = {"class_sums": moments.class_sums, "counts": moments.counts}
        if moments.moments is not None:
            terms["moments"] = moments.moments[np.triu_indices(len(moments.moments))]
        sums = {}
        for name, values in terms.items():
            sums[name] = FixedSum.of(values, 1.0, SUM_BITS)
        return cls(sums)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        sums = {}
        for name, steps in arrays.items():
            sums[name] = FixedSum.from_steps(steps, SUM_BITS)
        return cls(sums)

    def to_arrays(self) -> Arrays:
        return {name: total.steps for name, total in self.sums.items()}

    def __add__(self, other: Self) -> Self:
        added = {}
        for name, total in self.sums.items():
            added[name] = FixedSum(total.steps.shape, total.bits)
            added[name].merge(total)
            added[name].merge(other.sums[name])
        return type(self)(added)

    def value(self) -> FeatureMoments:
        class_sums = self.sums["class_sums"].value()
        counts = self.sums["counts"].value()
        if "moments" not in self.sums:
            return FeatureMoments(class_sums, counts)
        triangle = self.sums["moments"].value()
        moments = _symmetric(triangle, class_sums.shape[1])
        return FeatureMoments(class_sums, counts, moments)


def _symmetric(triangle: Matrix, width: int) -> Matrix:
    """(D, D) from its upper triangle."""
    matrix = np.zeros((width, width))
    matrix[np.triu_indices(width)] = triangle
    return matrix + np.triu(matrix, 1).T
