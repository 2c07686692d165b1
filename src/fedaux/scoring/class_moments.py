"""The scorer whose releases have second moments: class sums, counts and Σ φφᵀ of φ
under one noise, and a head of them.

A record of class c adds v = [a·φ to the sum of c | b to the count of c | m·(upper
triangle of φφᵀ, √2 off the diagonal)] with a² + b² + m² = 1. The triangle has the norm
‖φφᵀ‖ = ‖φ‖² = 1, so ‖v‖ = 1: three statistics cost what one costs, and the split (a, b,
m) says which of them the noise disturbs least. With the covariance within classes a
head is better than with the public one, where noise is low: few clients, many records,
or one noise for the sum of all clients (secure sums).

The dimension k and the split are chosen on public data and facts (`choose_split`), never on a
record. Where second moments would not pay, m is 0: they are not sent, and the head is
that of the class embedding, with the public covariance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from fedaux.core.arrays import Arrays, Vector
from fedaux.core.failures import OrderError
from fedaux.messages import Release
from fedaux.privacy.mechanism import (
    GRID,
    Bound,
    continuous_multiplier,
    unit_rows,
)
from fedaux.scoring.base import (
    Features,
    Labels,
    Reference,
    check_shapes,
)
from fedaux.scoring.embedding import (
    BETWEEN_GROUPS,
    ClassEmbeddingScorer,
    ClassValues,
    HeadArrays,
    Pooled,
    Spectrum,
    embed,
    linear_discriminant,
    on_features,
    pool_classes,
    posterior,
    posterior_mean,
    public_map,
    spectrum,
)

Rng = np.random.Generator
Split = tuple[float, float, float]  # a, b, m

ROW_STEPS = 2**20  # to a row of norm 1; times the steps of a share it makes GRID
# to a share of 1; so a unit has at most this many records
SHARE_STEPS = GRID // ROW_STEPS
MAX_DIMENSION = 512  # k; a release then has about 130,000 numbers
MOST_ENTRIES = 2**21  # of noise that is drawn at a time
LEAST_SPLIT = 0.5  # of a² + b² + m², which should be 1: less would only be noise


def triangle(k: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Vector]:
    """(row, column, weight) of the upper triangle of a symmetric matrix; the weights
    keep its norm.
    """
    row, column = np.triu_indices(k)
    return row, column, np.where(row == column, 1.0, math.sqrt(2.0))


def public_split(a: float, b: float, m: float) -> NDArray[np.float32]:
    """The split in single precision, with a² + b² + m² just below 1 in exact
    arithmetic.
    """
    split = np.array([a, b, m], np.float64)
    return (split / np.linalg.norm(split) * (1 - 2.0**-22)).astype(np.float32)


def sensitivity(split: Vector, adjacency: str) -> float:
    """The exact ℓ₂ sensitivity of Σ v to one unit, v of norm √(a² + b² + m²).

    Add-remove: that norm. Replace-one: let t = φ·φ′. Records of different classes are
    apart by 2(a² + b² + m²(1 − t²)), at most 2(a² + b² + m²); those of one class by
    a²(2 − 2t) + m²(2 − 2t²), which is largest at t = −a²/2m² or, where that is below
    −1, at t = −1. A φ of zero is nearer to everything, and so is a record of no class,
    which adds nothing.

    A unit of several records, of shares that add up to at most 1, adds a convex
    combination of their v and of 0. The distance of two such is convex in each, so it
    is largest where both are one of these: the bound is the same.
    """
    a, b, m = np.square(split)
    if adjacency == "add-remove":
        return math.sqrt(a + b + m)
    same = (
        2 * a + 2 * m + a * a / (2 * m) if 0 < a <= 2 * m else 4 * a + 2 * m * (a == 0)
    )
    return math.sqrt(max(same, 2 * (a + b + m)))


@dataclass(frozen=True)
class PublicFacts:
    """What is public of a sum before anybody is asked."""

    epsilon: float = 0.1
    delta: float = 1e-5
    adjacency: str = "replace-one"
    records: int = 10_000  # of all clients together
    releases: int = 1  # under noise of their own: clients, or one for their secure sum


@dataclass(frozen=True)
class ClassMomentsScorer(ClassEmbeddingScorer):
    """Class sums, counts and second moments of φ. As teachers, classes are weighed as
    by the class embedding.
    """

    embedding_dim: int = 0  # 0: chosen on public data
    name: str = "class-moments"
    facts: PublicFacts = PublicFacts()

    def publish(self, negatives: Features) -> Arrays:
        """Add the split to the public map, both chosen by `choose_split` unless a dimension is
        given.
        """
        known = spectrum(negatives)
        k, split = choose_split(
            negatives, self.classes, self.facts, self.embedding_dim, known
        )
        mean, basis = public_map(negatives, k, known)
        return {
            "mean": mean.astype(np.float32),
            "basis": basis.astype(np.float32),
            "split": public_split(*split),
        }

    def counts(self, public: Arrays, values: Vector) -> Vector:
        first = self.classes * (public["basis"].shape[1] + 1)
        return np.asarray(
            values[:first].reshape(self.classes, -1)[:, -1] / exact_split(public)[1]
        )

    def class_values(self, public: Arrays, release: Release) -> ClassValues:
        return _class_values(public, self.classes, release)

    def head(
        self,
        public: Arrays,
        reference: Reference,
        releases: Sequence[Release],
        kind: str = "discriminant",
    ) -> HeadArrays:
        """Compute a head on h0's own features; `kind` is one of `HEADS`, where there
        are second moments.
        """
        if not exact_split(public)[2]:
            return self.pool(public, releases).head(public, reference)
        moments = Moments.of(public, self.classes, releases)
        return on_features(public, *HEADS[kind](moments, reference))

    def size(self, public: Arrays) -> int:
        """Refuse a split that is none, and a map that is too wide: before anything is
        entered in the account.
        """
        split, k = exact_split(public), int(public["basis"].shape[1])
        if k > MAX_DIMENSION:
            raise OrderError(
                f"the public map has {k} dimensions; second moments have at most "
                f"{MAX_DIMENSION}"
            )
        return self.classes * (k + 1) + second_size(k, split)

    def bound(self, public: Arrays, adjacency: str, size: int) -> Bound:
        """In steps of 1/GRID. Rounding moves each coordinate of a row by less than 1
        step of ROW_STEPS.

        So it moves the difference of two rows by less than 2 on each coordinate they
        share, and by less than 1 on each other: by less than 2√size together.
        Arithmetic in double precision has a relative error of 2⁻⁴⁶, less than 2 steps.
        """
        rows = (
            ROW_STEPS * sensitivity(exact_split(public), adjacency)
            + 2 * math.sqrt(self.size(public))
            + 2
        )
        return Bound(
            float(GRID * size), 1.0 / GRID, float(SHARE_STEPS * math.ceil(rows))
        )


@dataclass(frozen=True, eq=False)
class Moments:
    """What the releases of any number of clients, or one of a sum over all of them, say
    together.
    """

    pooled: Pooled
    second: Vector  # (k, k): the mean of φφᵀ over all records
    noise: float  # standard deviation on its diagonal; elsewhere 1/√2 of it

    @classmethod
    def of(cls, public: Arrays, classes: int, releases: Sequence[Release]) -> Moments:
        """Classes are pooled as by the class embedding (`pool_classes`); Σ φφᵀ and its
        noise add up; m > 0.
        """
        (_, _, m), k = exact_split(public), public["basis"].shape[1]
        first, slots, variance = classes * (k + 1), np.zeros((k, k)), 0.0
        row, column, weight = triangle(k)
        for release in releases:
            slots[row, column] += (
                release.arrays["values"][first:] * release.step / (m * weight)
            )
            variance += (release.scale * release.step / m) ** 2
        records = sum(release.records for release in releases)
        second = (slots + np.triu(slots, 1).T) / records
        pooled = pool_classes(
            [_class_values(public, classes, release) for release in releases]
        )
        return cls(pooled, second, math.sqrt(variance) / records)

    @property
    def shares(self) -> Vector:
        """Of all records, by class."""
        return np.asarray(self.pooled.records / self.pooled.records.sum())

    @property
    def mean(self) -> Vector:
        return np.asarray(self.shares @ self.pooled.means)

    def within(self) -> Vector:
        """The covariance within classes: the mean of φφᵀ less Σ p_c mean_c mean_cᵀ,
        with eigenvalues raised to a floor.

        The noise is a symmetric Gaussian matrix, whose largest eigenvalue is close to
        noise·√(2k): what is below that may be noise alone, and a variance that is taken
        too small makes a direction count too much.
        """
        means = self.pooled.means
        return self._floored(self.second - (means.T * self.shares) @ means)

    def total(self) -> Vector:
        """The covariance of all records, floored alike."""
        return self._floored(self.second - np.outer(self.mean, self.mean))

    def _floored(self, covariance: Vector) -> Vector:
        values, vectors = np.linalg.eigh(covariance)
        floor = max(
            self.noise * math.sqrt(2 * len(values)), 1e-6 * float(values.max()), 1e-12
        )
        return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)

    def discriminant(
        self, reference: Reference, tempered: bool = True
    ) -> tuple[Vector, Vector]:
        """(weights (C, k), biases (C,)) on φ: Gaussians around the class means, of the
        covariance `within`.
        """
        covariance = self.within()
        means = self._class_means(covariance, reference)
        weights, bias = linear_discriminant(means, covariance, self.pooled.log_priors)
        calm = self._calm(covariance, reference) if tempered else 1.0
        return calm * weights, calm * (bias - weights @ self.mean)

    def ridge(self, reference: Reference) -> tuple[Vector, Vector]:
        """The same by least squares on one-hot labels, with the floor for a penalty.

        Predictions estimate one-hot labels; divided by the variance of their error they
        are the logits of a posterior.
        """
        covariance, shares = self.total(), self.shares
        targets = shares[:, None] * self._class_means(covariance, reference)
        weights = solve(covariance, targets.T, assume_a="pos").T
        unexplained = (
            1 - float(np.square(shares).sum()) - float((weights * targets).sum())
        )
        scale = self._calm(covariance, reference) / max(unexplained / len(shares), 1e-6)
        return scale * weights, scale * (shares - weights @ self.mean)

    def _class_means(self, within: Vector, reference: Reference) -> Vector:
        """Return the class means around the mean of all, (C, k).

        As in `predictive`, half of the public variance is expected between classes:
        directions in which the noise is larger than that count for less.
        """
        between = BETWEEN_GROUPS * reference.covariance
        return np.stack(
            [
                posterior_mean(shift, between, within, *known)
                for shift, *known in self._columns()
            ]
        )

    def _calm(self, covariance: Vector, reference: Reference) -> float:
        """A factor ≤ 1 on all logits for what noise leaves uncertain of the class
        means.
        """
        between = BETWEEN_GROUPS * reference.covariance
        found = [
            posterior(shift, between, covariance, *known)[1]
            for shift, *known in self._columns()
        ]
        return _tempered(
            covariance, np.einsum("c,ckl->kl", self.shares, np.stack(found)), reference
        )

    def _columns(self) -> Iterator[tuple[Vector, float, float]]:
        """(mean around that of all, its noise, records) of each class."""
        yield from zip(
            self.pooled.means - self.mean,
            self.pooled.sigma,
            self.pooled.records,
            strict=True,
        )


def _tempered(covariance: Vector, uncertainty: Vector, reference: Reference) -> float:
    """A factor ≤ 1 on all logits for what is uncertain of the class means: a noisy head
    should not be sure.

    Means with covariance U give a logit of φ the variance v = φᵀΣ⁻¹UΣ⁻¹φ. A posterior
    averaged over normal noise of variance 2v between two logits is about that of both
    divided by √(1 + πv/4) (MacKay 1992); v is that of public rows.
    """
    rows = solve(covariance, reference.covariance, assume_a="pos")  # Σ⁻¹S
    variance = float(
        np.einsum("ij,ji->", rows, solve(covariance, uncertainty, assume_a="pos"))
    )
    return 1 / math.sqrt(1 + math.pi * max(variance, 0.0) / 4)


HEADS: dict[str, Callable[[Moments, Reference], tuple[Vector, Vector]]] = {
    "discriminant": Moments.discriminant,
    "ridge": Moments.ridge,
}


DIMENSIONS = (16, 32, 64, 128, 256)
SPLITS = tuple(  # (a, b, m) of norm 1, the counts' share first
    (math.sqrt(1 - b * b) * math.cos(angle), b, math.sqrt(1 - b * b) * math.sin(angle))
    for b in (0.1, 0.2)
    for angle in (math.pi / 3.3, math.pi / 4, math.pi / 5.7)
)
# without second moments
PLAIN_SPLITS = ((math.sqrt(0.5), math.sqrt(0.5), 0.0), (math.sqrt(0.96), 0.2, 0.0))
LEAD = 0.02  # in accuracy on pseudo-classes, with which second moments are left out
# in the same: dimensions that are no further apart count as level, and the widest is
# taken
LEVEL = 0.01
# of public rows to a pseudo-class: classes have several modes, and clusters are too
# easy to tell apart
_CLUSTERS = 10
_PUBLIC_ROWS = 8192  # to plan with


def choose_split(
    negatives: Features,
    classes: int,
    facts: PublicFacts,
    embedding_dim: int = 0,
    known: Spectrum | None = None,
) -> tuple[int, Split]:
    """Choose (k, split) by the accuracy of noisy heads on pseudo-classes of D⁻: nothing
    is asked of a client.

    A pseudo-class is a union of clusters of public rows. The moments of two thirds of
    them, enlarged to the expected number of records and disturbed by seeded noise as
    strong as that of the releases, make a head, which is judged on the rest. Second
    moments are left out only where heads without them are ahead by `LEAD`: these have
    the public covariance, which is the right one for pseudo-classes and not quite that
    of private rows. For one sum, of dimensions that are level the widest is taken: real
    classes are further apart than pseudo-classes, so noise costs them less. The noise
    of many clients leaves no room for that (ten clients of 70 digits lost by it).

    Args:
        negatives: Features of D⁻, (|D⁻|, H).
        classes: The number of classes.
        facts: The budget, and how many records and releases are expected.
        embedding_dim: A dimension to choose the split for; 0: choose it as well.
        known: The negatives' `spectrum`, if it is known.

    Returns:
        The dimension, and (a, b, m).
    """
    known = known or spectrum(negatives)
    rows = negatives[
        np.random.default_rng(0).permutation(len(negatives))[:_PUBLIC_ROWS]
    ]
    widest = min(rows.shape[1], len(rows) - 1, MAX_DIMENSION)
    dimensions = (
        [embedding_dim]
        if embedding_dim
        else [*(k for k in DIMENSIONS if k < widest), widest]
    )
    groups = _pseudo_classes(rows, classes, known)
    judged: dict[tuple[int, Split], float] = {}
    for k in dimensions:
        mean, basis = public_map(rows, k, known)
        public = {"mean": mean.astype(np.float32), "basis": basis.astype(np.float32)}
        trial = _Trial(embed(public, rows), groups, classes, facts)
        judged |= {
            (k, split): trial.accuracy(split) for split in (*PLAIN_SPLITS, *SPLITS)
        }
    plain, moments = (
        {
            choice: found
            for choice, found in judged.items()
            if (choice[1][2] > 0) is sent
        }
        for sent in (False, True)
    )
    taken = plain if max(plain.values()) >= max(moments.values()) + LEAD else moments
    return (
        widest_level(taken)
        if facts.releases == 1
        else max(taken, key=taken.__getitem__)
    )


def widest_level(judged: Mapping[tuple[int, Split], float]) -> tuple[int, Split]:
    """Return the best choice of the widest dimension that is level with the best of
    all.
    """
    least = max(judged.values()) - LEVEL
    return max(
        (choice for choice in judged if judged[choice] >= least),
        key=lambda one: (one[0], judged[one]),
    )


def _pseudo_classes(rows: Features, classes: int, known: Spectrum) -> Labels:
    from sklearn.cluster import KMeans

    mean, basis = public_map(rows, 64, known)
    clusters = min(
        len(rows), classes * max(1, min(_CLUSTERS, len(rows) // (10 * classes)))
    )
    found = KMeans(clusters, n_init=1, random_state=0).fit_predict(
        unit_rows((rows - mean) @ basis)
    )
    return np.asarray(
        np.random.default_rng(0).permutation(clusters)[found] % classes, np.int64
    )


@dataclass(frozen=True, eq=False)
class _Trial:
    """Heads from disturbed moments of two thirds of public rows, judged on the rest."""

    rows: Vector  # φ
    groups: Labels
    classes: int
    facts: PublicFacts

    @cached_property
    def learn(self) -> NDArray[np.bool_]:
        """Which rows moments are taken of."""
        return np.arange(len(self.rows)) % 3 > 0

    @cached_property
    def reference(self) -> Reference:
        return Reference(self.rows)

    @cached_property
    def moments(self) -> tuple[Vector, Vector, Vector]:
        """(share and mean φ of each pseudo-class, mean φφᵀ); clients of one class each
        have them all alike.
        """
        rows, one_hot = (
            self.rows[self.learn],
            np.eye(self.classes)[self.groups[self.learn]],
        )
        counts = one_hot.sum(axis=0)
        shares = (
            counts / counts.sum()
            if self.facts.releases == 1
            else (counts > 0) / (counts > 0).sum()
        )
        weights = one_hot @ (shares / np.maximum(counts, 1.0))
        return (
            shares,
            (one_hot.T @ rows) / np.maximum(counts, 1.0)[:, None],
            (rows.T * weights) @ rows,
        )

    def accuracy(self, split: Split, draws: int = 3) -> float:
        rows, groups, found = self.rows[~self.learn], self.groups[~self.learn], []
        for draw in range(draws):
            weights, bias = self.head(split, np.random.default_rng(draw))
            found.append(
                float(np.mean((rows @ weights.T + bias).argmax(axis=1) == groups))
            )
        return float(np.mean(found))

    def head(
        self, split: Split, rng: Rng, tempered: bool = False
    ) -> tuple[Vector, Vector]:
        """The head of releases with the noise that they would have.

        Each of several clients has one class, or as few as there are clients for, which
        is the hardest case: what it has must stand out of the noise on its own counts.
        """
        (a, b, m), facts, (shares, means, second) = split, self.facts, self.moments
        k, noise = len(second), continuous_multiplier(facts.epsilon, facts.delta)
        noise *= sensitivity(np.array(split), facts.adjacency)
        # of more, the noise on sums is that of the mean
        clients = min(facts.releases, max(1, MOST_ENTRIES // means.size))
        fewer, held = (
            noise / a * math.sqrt(clients / facts.releases),
            np.zeros((clients, self.classes)),
        )
        turns = np.arange(max(clients, self.classes))
        held[turns % clients, turns % self.classes] = shares[turns % self.classes]
        records = facts.records / facts.releases
        counts = records * held / np.maximum(held.sum(axis=1, keepdims=True), 1e-12)
        released = [
            ClassValues(
                own[:, None] * means + rng.normal(0, fewer, means.shape),
                own + rng.normal(0, noise / b, own.shape),
                fewer,
                noise / b,
                records,
            )
            for own in counts
        ]
        pooled = pool_classes(released)
        if not m:
            return pooled.discriminant(self.reference)
        deviation = noise / m * math.sqrt(facts.releases) / facts.records
        second = second + symmetric_noise(k, deviation, rng)
        return Moments(pooled, second, deviation).discriminant(self.reference, tempered)


def symmetric_noise(k: int, deviation: float, rng: Rng) -> Vector:
    """What noise on the weighted triangle is as a matrix: `deviation` on the diagonal,
    1/√2 of it elsewhere.
    """
    row, column, weight = triangle(k)
    noise = np.zeros((k, k))
    noise[row, column] = rng.normal(0, deviation, len(row)) / weight
    return noise + np.triu(noise, 1).T


def _class_values(public: Arrays, classes: int, release: Release) -> ClassValues:
    (a, b, _), k = exact_split(public), public["basis"].shape[1]
    values, noise = (
        release.arrays["values"] * release.step,
        release.scale * release.step,
    )
    own = values[: classes * (k + 1)].reshape(classes, k + 1)
    return ClassValues(
        own[:, :-1] / a, own[:, -1] / b, noise / a, noise / b, release.records
    )


def second_size(k: int, split: Vector) -> int:
    """Return how many numbers of a release are second moments."""
    return k * (k + 1) // 2 if split[2] else 0


def exact_split(public: Arrays) -> Vector:
    """The public split as exact doubles, of which the proof needs that a² + b² + m² ≤
    1.
    """
    check_shapes(public, split=(3,))
    split = public["split"].astype(np.float64)
    if not ((split >= 0).all() and LEAST_SPLIT <= np.square(split).sum() <= 1.0):
        raise OrderError(
            f"the public array 'split' is {split.tolist()}: three shares a, b, m ≥ 0, "
            "a² + b² + m² = 1"
        )
    return split
