"""Second moments of φ in releases: their layout and sensitivity, and what the releases of
any number of clients say together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from fedaux.core.arrays import Arrays, Vector
from fedaux.core.failures import OrderError
from fedaux.messages import Release
from fedaux.scoring.base import Reference
from fedaux.scoring.embedding import (
    BETWEEN_GROUPS,
    ClassValues,
    Pooled,
    linear_discriminant,
    pool_classes,
    posterior,
    posterior_mean,
)

Split = tuple[float, float, float]  # a, b, m

LEAST_SPLIT = 0.5  # of a² + b² + m², which should be 1: less would only be noise


def triangle(k: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Vector]:
    """(row, column, weight) of the upper triangle of a symmetric matrix. The weights
    keep its norm.
    """
    row, column = np.triu_indices(k)
    weight = np.where(row == column, 1.0, math.sqrt(2.0))
    return row, column, weight


def public_split(*shares: float) -> NDArray[np.float32]:
    """The shares (a, b, m), or (a, b) of a signed sum, in single precision, with a norm
    of v just below 1 in exact arithmetic.
    """
    split = np.array(shares, np.float64)
    below_one = split / math.sqrt(squared_norm(split)) * (1 - 2.0**-22)
    return below_one.astype(np.float32)


def sensitivity(split: Vector, adjacency: str) -> float:
    """The exact ℓ₂ sensitivity of Σ v to one unit, v of norm √(a² + b² + m²).

    Add-remove: that norm. Replace-one: let t = φ·φ′. Records of different classes are
    apart by 2(a² + b² + m²(1 − t²)), at most 2(a² + b² + m²). Those of one class by
    a²(2 − 2t) + m²(2 − 2t²), which is largest at t = −a²/2m² or, where that is below
    −1, at t = −1. A φ of zero is nearer to everything, and so is a record of no class,
    which adds nothing.

    A unit of several records, of shares that add up to at most 1, adds a convex
    combination of their v and of 0. The distance of two such is convex in each, so it
    is largest where both are one of these: the bound is the same.

    A signed sum: v = [±a·φ | ±b | b·φ]. Records of one class are apart by at most
    4(a² + b²), and those of different classes by 4b² and a²‖φ + φ′‖² + b²‖φ − φ′‖², at
    most 4·max(a², b²).
    """
    if is_signed(split):
        if adjacency == "add-remove":
            return math.sqrt(squared_norm(split))
        a, b = np.square(split)
        return 2 * math.sqrt(max(a, b) + b)
    a, b, m = np.square(split)
    if adjacency == "add-remove":
        return math.sqrt(a + b + m)
    # squared distances of two records of one class, and of different classes
    if a == 0:
        same = 2 * m
    elif a <= 2 * m:
        same = 2 * a + 2 * m + a * a / (2 * m)
    else:
        same = 4 * a
    different = 2 * (a + b + m)
    return math.sqrt(max(same, different))


def second_size(k: int, split: Vector) -> int:
    """Return how many numbers of a release come after the sums of classes: second
    moments, or the plain sum of a signed one.
    """
    if is_signed(split):
        return k
    if not split[2]:
        return 0
    return k * (k + 1) // 2


def is_signed(split: Vector) -> bool:
    """Whether this is the split (a, b) of one signed sum for two classes."""
    return len(split) == 2


def squared_norm(split: Vector) -> float:
    """‖v‖² for a φ of norm 1: a² + b² + m², or a² + 2b² in a signed sum."""
    total = float(np.square(split).sum())
    return total + float(split[1]) ** 2 if is_signed(split) else total


def exact_split(public: Arrays) -> Vector:
    """The public split as exact doubles, of which the proof needs that ‖v‖ ≤ 1: (a, b,
    m), or (a, b) of a signed sum.
    """
    if public["split"].shape not in ((2,), (3,)):
        raise OrderError(
            "Cannot make a release: the public array 'split' has shape "
            f"{public['split'].shape}, not (3,), or (2,) for a signed sum. Install the "
            "same version of fedaux at the server and the sites."
        )
    split = public["split"].astype(np.float64)
    if not ((split >= 0).all() and LEAST_SPLIT <= squared_norm(split) <= 1.0):
        raise OrderError(
            f"Cannot make a release: the public array 'split' is {split.tolist()}, and "
            "should be three shares a, b, m ≥ 0, a² + b² + m² = 1, or two of a signed "
            "sum, a² + 2b² = 1. Install the same version of fedaux at the server and "
            "the sites."
        )
    return split


def values_by_class(public: Arrays, classes: int, release: Release) -> ClassValues:
    """Return sums and counts of a release in units of records, with their noise."""
    a, b, _ = exact_split(public)
    k = public["basis"].shape[1]
    values = release.arrays["values"] * release.step
    noise = release.scale * release.step
    by_class = values[: classes * (k + 1)].reshape(classes, k + 1)
    return ClassValues(
        sums=by_class[:, :-1] / a,
        counts=by_class[:, -1] / b,
        noise=noise / a,
        count_noise=noise / b,
        records=release.records,
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
        m = exact_split(public)[2]
        k = public["basis"].shape[1]
        first = classes * (k + 1)
        row, column, weight = triangle(k)
        total = np.zeros((k, k))  # its upper triangle
        variance = 0.0
        for release in releases:
            seconds = release.arrays["values"][first:]
            total[row, column] += seconds * release.step / (m * weight)
            variance += (release.scale * release.step / m) ** 2
        records = sum(release.records for release in releases)
        second = (total + np.triu(total, 1).T) / records
        released = [values_by_class(public, classes, release) for release in releases]
        return cls(pool_classes(released), second, math.sqrt(variance) / records)

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
        between = (means.T * self.shares) @ means
        return self._floored(self.second - between)

    def total(self) -> Vector:
        """The covariance of all records, floored alike."""
        return self._floored(self.second - np.outer(self.mean, self.mean))

    def _floored(self, covariance: Vector) -> Vector:
        values, vectors = np.linalg.eigh(covariance)
        of_noise = self.noise * math.sqrt(2 * len(values))
        floor = max(of_noise, 1e-6 * float(values.max()), 1e-12)
        values = np.maximum(values, floor)
        return np.asarray((vectors * values) @ vectors.T)

    def discriminant(
        self, reference: Reference, tempered: bool = True
    ) -> tuple[Vector, Vector]:
        """(weights (C, k), biases (C,)) on φ: Gaussians around the class means, of the
        covariance `within`.
        """
        covariance = self.within()
        means = self._class_means(covariance, reference)
        weights, bias = linear_discriminant(means, covariance, self.pooled.log_priors)
        temper = self._temper(covariance, reference) if tempered else 1.0
        return temper * weights, temper * (bias - weights @ self.mean)

    def ridge(self, reference: Reference) -> tuple[Vector, Vector]:
        """The same by least squares on one-hot labels, with the floor for a penalty.

        Predictions estimate one-hot labels; divided by the variance of their error they
        are the logits of a posterior.
        """
        covariance = self.total()
        shares = self.shares
        targets = shares[:, None] * self._class_means(covariance, reference)
        weights = solve(covariance, targets.T, assume_a="pos").T
        explained = float((weights * targets).sum())
        unexplained = 1 - float(np.square(shares).sum()) - explained
        variance = max(unexplained / len(shares), 1e-6)
        scale = self._temper(covariance, reference) / variance
        bias = scale * (shares - weights @ self.mean)
        return scale * weights, bias + np.log(self.pooled.weights)

    def _class_means(self, within: Vector, reference: Reference) -> Vector:
        """Return the class means around the mean of all, (C, k).

        As in `predictive`, half of the public variance is expected between classes:
        directions in which the noise is larger than that count for less.
        """
        between = BETWEEN_GROUPS * reference.covariance
        means = []
        for shift, sigma, records in self._columns():
            means.append(posterior_mean(shift, between, within, sigma, records))
        return np.stack(means)

    def _temper(self, covariance: Vector, reference: Reference) -> float:
        """A factor ≤ 1 on all logits for what noise leaves uncertain of the class
        means.
        """
        between = BETWEEN_GROUPS * reference.covariance
        uncertainties = []
        for shift, sigma, records in self._columns():
            _, uncertainty = posterior(shift, between, covariance, sigma, records)
            uncertainties.append(uncertainty)
        mean = np.einsum("c,ckl->kl", self.shares, np.stack(uncertainties))
        return _tempered(covariance, mean, reference)

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
    means = solve(covariance, uncertainty, assume_a="pos")  # Σ⁻¹U
    variance = float(np.einsum("ij,ji->", rows, means))
    return 1 / math.sqrt(1 + math.pi * max(variance, 0.0) / 4)


HEADS: dict[str, Callable[[Moments, Reference], tuple[Vector, Vector]]] = {
    "discriminant": Moments.discriminant,
    "ridge": Moments.ridge,
}
