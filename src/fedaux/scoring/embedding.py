"""The default scorer, on φ: a record's features, centred and half-whitened by a public
map, as a direction.

The map comes from features of D⁻ alone. Each record's φ has norm at most 1, so
exchanging one record moves a sum of φ by at most 2, whatever the record is. That is the
whole proof. A client releases noisy sums and counts per class. What the server makes of
them, densities, weights and a head in closed form, is post-processing and costs no
further privacy.

SciPy's slow subpackages are imported where they are used: a real client starts a new
process for every message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.special import logsumexp

from fedaux.core.arrays import Arrays, Vector
from fedaux.messages import Release
from fedaux.privacy.mechanism import (
    GRID,
    Bound,
    unit_rows,
)
from fedaux.scoring.base import (
    Features,
    Fit,
    Fitted,
    LogOdds,
    PortableScorer,
    Reference,
    Transform,
    check_shapes,
)

_BLOCK = 2**13  # rows of D⁻ at a time: never all of them in double precision
# β, the share of public variance that is taken to lie between clients, or between
# classes
BETWEEN_GROUPS = 0.5
# in units of GRID; proven in `client.summaries.embedding`
SENSITIVITY = {"replace-one": 2.0, "add-remove": np.sqrt(2.0)}
# (weights (C, H), biases (C,)) on h0's own features
HeadArrays = tuple[NDArray[np.float32], NDArray[np.float32]]
# counts below this many standard deviations of their noise count as 0
COUNT_THRESHOLD = 2.0
UNKNOWN = 1e6  # noise on the mean of a class of which no client has records


# mean; variances, the largest first; directions, in columns
Spectrum = tuple[Vector, Vector, Vector]


def spectrum(negatives: Features) -> Spectrum:
    """Decompose the covariance of public features, once for maps of any dimension."""
    mean = negatives.mean(axis=0, dtype=np.float64)
    covariance = sum(
        (negatives[rows] - mean).T @ (negatives[rows] - mean)
        for rows in _slices(negatives)
    )
    covariance = np.asarray(covariance) / len(negatives)
    if not np.isfinite(covariance).all():
        raise ValueError(
            "Cannot score: the features of the auxiliary data are not finite. Look for "
            "NaN and inf in it."
        )
    variances, directions = np.linalg.eigh(covariance)
    order = np.argsort(variances)[::-1]
    return mean, variances[order], directions[:, order]


def public_map(
    negatives: Features, embedding_dim: int, known: Spectrum | None = None
) -> tuple[Vector, Vector]:
    """(μ, B) such that (h − μ) B is the half-whitened PCA of h, scaled so that rows of
    D⁻ have norm 1 in the median.

    Half-whitening divides a direction of variance v by v^¼: it amplifies directions of
    low variance, in which classes differ, without amplifying the noise of the lowest as
    much. `known` is the negatives' `spectrum`, if it is known.
    """
    mean, variances, directions = known or spectrum(negatives)
    keep = np.arange(min(embedding_dim, len(negatives) - 1, len(variances)))
    keep = keep[variances[keep] > 1e-9 * variances.max(initial=1e-30)]
    if keep.size == 0:
        raise ValueError(
            "Cannot score: all features of the negatives are equal: there is nothing "
            "to score with. Check the auxiliary data."
        )
    basis = directions[:, keep] * variances[keep] ** -0.25
    norms = np.concatenate(
        [
            np.linalg.norm((negatives[rows] - mean) @ basis, axis=1)
            for rows in _slices(negatives)
        ]
    )
    return mean, basis / np.median(norms)


def _slices(rows: Features) -> list[slice]:
    return [slice(start, start + _BLOCK) for start in range(0, len(rows), _BLOCK)]


def embed(public: Arrays, features: Features) -> Vector:
    """φ(x) = u/‖u‖ with u = (h0(x) − μ) B: fast, for public rows."""
    check_map(public, features)
    return unit_rows(
        (np.asarray(features, np.float64) - public["mean"])
        @ public["basis"].astype(np.float64)
    )


def check_map(public: Arrays, features: Features) -> None:
    """Refuse a public map that is not for features of this width."""
    check_shapes(
        public,
        mean=(features.shape[1],),
        basis=(features.shape[1], public["basis"].shape[1]),
    )


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A density of φ."""

    mean: Vector
    covariance: Vector

    @cached_property
    def _frozen(self) -> Any:
        from scipy.stats import multivariate_normal

        return multivariate_normal(self.mean, self.covariance, allow_singular=True)

    def log_density(self, rows: Features) -> Vector:
        return np.atleast_1d(self._frozen.logpdf(rows))


def predictive(
    mean: Vector, public: Gaussian, sigma: float, records: float
) -> Gaussian:
    """The density of new rows from a group whose mean is known only through a noisy
    release.

    Random effects: public rows vary by S, of which B = βS lies between groups and W = S
    − B within one. So the true mean is m ~ N(μ, B), its rows are N(m, W), and the
    release is N(m, V) with V = σ²·1 + W/records. Given the release, m has mean μ + K(m̃
    − μ) and covariance K V with K = B (B + V)⁻¹, and a new row has covariance W + K V.
    Noise that hides the signal gives K → 0: one density for every group.
    """
    within = (1 - BETWEEN_GROUPS) * public.covariance
    shift, uncertainty = posterior(
        mean - public.mean, BETWEEN_GROUPS * public.covariance, within, sigma, records
    )
    return Gaussian(public.mean + shift, within + uncertainty)


def posterior(
    shift: Vector, between: Vector, within: Vector, sigma: float, records: float
) -> tuple[Vector, Vector]:
    """(mean, covariance) of m ~ N(0, B) given its noisy release, as in `predictive`:
    K·shift and K V.
    """
    noise = sigma**2 * np.eye(len(between)) + within / records
    gain = np.linalg.solve(between + noise, between).T
    return gain @ shift, gain @ noise


def posterior_mean(
    shift: Vector, between: Vector, within: Vector, sigma: float, records: float
) -> Vector:
    """The mean of `posterior` alone, which is faster."""
    noise = sigma**2 * np.eye(len(between)) + within / records
    return np.asarray(between @ solve(between + noise, shift, assume_a="pos"))


@dataclass(frozen=True)
class ClassEmbeddingScorer(PortableScorer):
    """The default: private sums of φ per class, pooled over the clients that share a
    class.

    A record has one class, so all sums and counts of a client cost what one sum costs.
    The density of a class is estimated from all releases, and only the mixture of
    classes from a client's own: with n clients of a class, the noise on its mean falls
    by √n. Labels are covered by the release as everything else is.
    """

    classes: int
    embedding_dim: int = 32
    name: str = "class-embedding"
    # the sum of clients' summaries is the summary of all their records
    additive: ClassVar[bool] = True

    def publish(self, negatives: Features) -> Arrays:
        mean, basis = public_map(negatives, self.embedding_dim)
        return {"mean": mean.astype(np.float32), "basis": basis.astype(np.float32)}

    def embed(self, public: Arrays, features: Features) -> Vector:
        return embed(public, features)

    def counts(self, public: Arrays, values: Vector) -> Vector:
        """Return the records of each class, (C,), of a release in units."""
        return values.reshape(self.classes, -1)[:, -1]

    def size(self, public: Arrays) -> int:
        return self.classes * (int(public["basis"].shape[1]) + 1)

    def bound(self, public: Arrays, adjacency: str, size: int) -> Bound:
        return sums_bound(adjacency, size)

    def pool(self, public: Arrays, releases: Sequence[Release]) -> Pooled:
        """Estimate the classes from all releases, and each client's mixture of them
        from its own.
        """
        return pool_classes(
            [self.class_values(public, release) for release in releases]
        )

    def balanced(self, public: Arrays, releases: Sequence[Release]) -> Vector:
        """Weights with which all classes count alike, from the noisy counts."""
        return self.pool(public, releases).balanced

    def class_values(self, public: Arrays, release: Release) -> ClassValues:
        """Return sums and counts of a release in units of records, with their noise."""
        return class_values(release, self.classes)

    def head(
        self,
        public: Arrays,
        reference: Reference,
        releases: Sequence[Release],
        *,
        weights: Vector | float = 1.0,
    ) -> HeadArrays:
        """Compute a head on h0's own features from releases alone, which costs no
        further privacy. A record of class c counts `weights`[c].
        """
        pooled = replace(self.pool(public, releases), weights=weights)
        return pooled.head(public, reference)

    def fit_arrays(
        self, public: Arrays, reference: Reference, releases: Sequence[Release]
    ) -> Fit:
        """Shared: the pooled classes and the moments of D⁻. Own: class shares π_i, and
        log |D_i|/|D⁻|.
        """
        pooled = self.pool(public, releases)
        shared = {
            "means": pooled.means,
            "sigma": pooled.sigma,
            "records": pooled.records,
            "centre": reference.mean,
            "covariance": reference.covariance,
        }
        own = {}
        for release, shares in zip(releases, pooled.shares, strict=True):
            offset = np.log([release.records / len(reference.rows)])
            own[release.client] = {"shares": shares, "offset": offset}
        return shared, own

    def from_arrays(self, shared: Arrays, own: Mapping[str, Arrays]) -> Fitted:
        """log D_i(x)/D⁻(x) = log |D_i|/|D⁻| Σ_c π_ic p_c(x)/p(x), p_c predictive under
        the pooled noise, p of D⁻.
        """

        def log_odds(shares: Vector, offset: Vector) -> LogOdds:
            present = shares > 0
            return lambda ratios: (
                logsumexp(ratios[:, present], axis=1, b=shares[present]) + offset
            )

        return Fitted(
            {
                client: log_odds(arrays["shares"], arrays["offset"])
                for client, arrays in own.items()
            },
            density_ratios(shared),
            {
                client: arrays["shares"] * np.exp(arrays["offset"])
                for client, arrays in own.items()
            },
        )


def density_ratios(shared: Arrays) -> Transform:
    """(B, k) → (B, C), log p_c(x)/p(x)."""
    public = Gaussian(shared["centre"], shared["covariance"])
    pooled = Pooled(
        shared["means"],
        shared["sigma"],
        shared["records"],
        np.zeros((0, len(shared["means"]))),
    )
    classes = pooled.densities(public)

    def transform(rows: Features) -> Vector:
        ratios = np.stack([density.log_density(rows) for density in classes], axis=1)
        return np.asarray(ratios - public.log_density(rows)[:, None])

    return transform


def sums_bound(adjacency: str, size: int) -> Bound:
    """The norm is largest where all units are alike: each then adds the same vector of
    norm √2·GRID.
    """
    return Bound(
        np.sqrt(2.0) * GRID * size,
        1.0 / GRID,
        float(np.ceil(GRID * SENSITIVITY[adjacency])),
    )


@dataclass(frozen=True, eq=False)
class Pooled:
    """Estimates for each class c, and of the class mixture of each client i."""

    means: Vector  # (C, k): of φ
    sigma: Vector  # (C,): noise on each coordinate of the means
    records: Vector  # (C,): in each class
    shares: Vector  # (clients, C), each row summing to 1
    weights: Vector | float = 1.0  # how much a record of each class counts in a head

    def densities(self, public: Gaussian) -> list[Gaussian]:
        """The density of each class (`predictive`), given the noise on its mean."""
        columns = zip(self.means, self.sigma, self.records, strict=True)
        return [
            predictive(mean, public, sigma, records) for mean, sigma, records in columns
        ]

    def head(self, public: Arrays, reference: Reference) -> HeadArrays:
        """(weights (C, H), biases (C,)) of a head on h0's own features, by discriminant
        analysis of the class means.

        φ is taken to be linear in the features: it is a direction, and the public map
        has norm 1 in the median. It works for clients with one class as for clients
        with all.
        """
        return on_features(public, *self.discriminant(reference))

    def discriminant(self, reference: Reference) -> tuple[Vector, Vector]:
        """(weights (C, k), biases (C,)) on φ.

        Rows of a class are taken to vary as public rows do, around means that are
        shrunk according to the noise (`predictive`), by which logits are tempered as
        well.
        """
        centre = reference.mean
        rows = reference.covariance
        width = len(centre)
        between = BETWEEN_GROUPS * rows
        within = (1 - BETWEEN_GROUPS) * rows
        columns = zip(self.means - centre, self.sigma, self.records, strict=True)
        shifts = [
            posterior_mean(shift, between, within, sigma, records)
            for shift, sigma, records in columns
        ]
        means = centre + np.stack(shifts)
        # of a row's class mean: a class that no one shows has a mean without bounds,
        # and no rows
        noise = float(
            np.average(np.square(self.sigma), weights=self.shares.sum(axis=0))
        )
        covariance = rows + (noise + 1e-6 * np.trace(rows) / width) * np.eye(width)
        return linear_discriminant(means, covariance, self.log_priors)

    @property
    def log_priors(self) -> Vector:
        counted = self.records * self.weights
        return np.asarray(np.log(counted / counted.sum()))

    @property
    def balanced(self) -> Vector:
        """Weights with which all classes count alike. A class whose count noise hides
        counts 1.
        """
        return balanced_weights(np.where(self.records > 1, self.records, 0.0))


def balanced_weights(counts: Vector) -> Vector:
    """Weights with which classes of so many records count alike, all records together
    as much as before. A class without records counts 1.
    """
    present = counts > 0
    even = counts.sum() / max(int(present.sum()), 1)
    return np.where(present, even / np.where(present, counts, 1.0), 1.0)


def on_features(public: Arrays, weights: Vector, bias: Vector) -> HeadArrays:
    """Convert a head on φ, (C, k), to one on h0's own features, (C, H): u = (h0 − μ) B
    stands for its direction.
    """
    folded = weights @ public["basis"].T.astype(np.float64)
    bias = bias - folded @ public["mean"].astype(np.float64)
    return folded.astype(np.float32), bias.astype(np.float32)


def linear_discriminant(
    means: Vector, covariance: Vector, log_priors: Vector
) -> tuple[Vector, Vector]:
    """(weights (C, k), biases (C,)) of log p(c∣x), up to what all classes share.

    x of class c is N(mean_c, Σ), so w_c = Σ⁻¹ mean_c and b_c = log p(c) − ½ w_c·mean_c.
    Σ must be positive definite.
    """
    weights = solve(covariance, means.T, assume_a="pos").T
    return weights, log_priors - 0.5 * (weights * means).sum(axis=1)


@dataclass(frozen=True, eq=False)
class ClassValues:
    """What one release says of its classes, with the standard deviations of its
    noise.
    """

    sums: Vector  # (C, k): Σ φ
    counts: Vector  # (C,)
    noise: float  # on each coordinate of the sums
    count_noise: float
    records: float  # public: the number of units behind the release


def class_values(release: Release, classes: int) -> ClassValues:
    values = (release.arrays["values"] * release.step).reshape(classes, -1)
    noise = release.scale * release.step
    return ClassValues(values[:, :-1], values[:, -1], noise, noise, release.records)


def pool(releases: Sequence[Release], classes: int) -> Pooled:
    return pool_classes([class_values(release, classes) for release in releases])


def pool_classes(released: Sequence[ClassValues]) -> Pooled:
    """Each client's s_c is n_c times the mean of the class, plus noise σ_i and the
    spread of its own records, of variance v n_c: least squares over the clients.

        t_ic = n_ic/(σ_i² + v n_ic),  mean_c = Σ_i t_ic s_ic / Σ_i t_ic n_ic,
        with noise of variance Σ_i t_ic² σ_i² / (Σ_i t_ic n_ic)²

    v = 1/k, since rows of φ have norm at most 1. Where noise is small, every record
    counts alike, else large clients count for more, as their share of noise is less. A
    client without the class has n = 0 and so adds no noise to it. The n are the noisy
    counts, those that noise alone would explain set to 0, made to add up to the
    client's public size. A client none of whose counts stands out is taken to have all
    classes alike.
    """

    def column(values: Sequence[float]) -> Vector:
        return np.array(values, np.float64)[:, None]

    sums = np.stack([values.sums for values in released])  # s_ic, (n, C, k)
    counts = np.stack([values.counts for values in released])  # (n, C)
    sigma = column([values.noise for values in released])  # σ_i, (n, 1)
    sigma = np.maximum(sigma, 1e-9)
    sizes = column([values.records for values in released])
    count_noise = column([values.count_noise for values in released])

    threshold = np.maximum(COUNT_THRESHOLD * count_noise, 2e-9)
    counts = np.where(counts > threshold, counts, 0.0)
    total = counts.sum(axis=1, keepdims=True)
    has_counts = total > 0
    even = 1.0 / counts.shape[1]
    shares = np.where(has_counts, counts / np.where(has_counts, total, 1.0), even)

    records = shares * sizes  # n_ic
    spread = records / sums.shape[2]  # v n_ic
    trust = records / (np.square(sigma) + spread)  # t_ic
    total_trust = (trust * records).sum(axis=0)
    known = total_trust > 0
    divisor = np.where(known, total_trust, 1.0)
    means = np.einsum("ic,ick->ck", trust, sums) / divisor[:, None]
    noise = np.sqrt(np.square(trust * sigma).sum(axis=0)) / divisor
    noise = np.where(known, noise, UNKNOWN)
    return Pooled(means, noise, np.maximum(records.sum(axis=0), 1.0), shares)
