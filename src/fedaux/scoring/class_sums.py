"""Sums of φ and counts per class: a client's summary, and pooled estimates from the releases of a cohort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedaux.core.messages import Release
from fedaux.privacy.clipping import GRID, Bound, max_norm, quantize
from fedaux.privacy.release import Summary
from fedaux.scoring.base import Labels, Moments, Reference, Shares, Vector
from fedaux.scoring.density_ratio import predictive
from fedaux.scoring.discriminant import linear_discriminant

SENSITIVITY = {"replace-one": 2.0, "add-remove": np.sqrt(2.0)}  # in units of GRID; proven in `class_sums`
COUNT_THRESHOLD = 2.0  # counts below so many standard deviations of their noise are taken for 0


def class_sums(embedded: Vector, labels: Labels, classes: int, adjacency: str, size: int, shares: Shares) -> Summary:
    """(Σ of φ per class, count per class), flattened to classes·(k + 1) integers. embedded: rows of norm at most 1.

    One record of share s adds u of norm ≤ t = ⌊s·GRID⌋ to the sum of its class and t to its count. So a unit adds to
    class c a sum of norm ≤ a_c·GRID and a count a_c·GRID, with Σ a_c ≤ 1: all together a vector of norm
    ≤ √(Σ 2a_c²)·GRID ≤ √2·GRID. Exchanged for a unit with b_c, the squared distance is at most
    Σ (a_c + b_c)² + (a_c − b_c)² = 2 Σ a_c² + b_c² ≤ 4. A label that is none of the classes adds nothing.
    """
    labels, counts = np.asarray(labels), np.broadcast_to(max_norm(shares), len(embedded))
    steps, known = quantize(embedded, shares), (labels >= 0) & (labels < classes)
    values = np.zeros((classes, steps.shape[1] + 1), np.int64)
    np.add.at(values[:, :-1], labels[known], steps[known])
    np.add.at(values[:, -1], labels[known], counts[known])
    bound = sums_bound(adjacency, size)
    return Summary(values.ravel(), bound.step, bound.sensitivity, adjacency, size)


def sums_bound(adjacency: str, size: int) -> Bound:
    """The norm is largest where all units are alike: each then adds the same vector of norm √2·GRID."""
    return Bound(np.sqrt(2.0) * GRID * size, 1.0 / GRID, float(np.ceil(GRID * SENSITIVITY[adjacency])))


@dataclass(frozen=True, eq=False)
class Pooled:
    """Estimates for each class c, and of the class mixture of each client i."""

    means: Vector  # (C, k): of φ
    sigma: Vector  # (C,): noise on each coordinate of the means
    records: Vector  # (C,): in each class
    shares: Vector  # (clients, C), each row summing to 1

    def densities(self, reference: Reference | Moments) -> list[Any]:
        """The density of each class (`predictive`), given the noise on its mean."""
        columns = zip(self.means, self.sigma, self.records, strict=True)
        return [predictive(mean, reference, sigma, records) for mean, sigma, records in columns]

    def discriminant(self, reference: Reference | Moments) -> tuple[Vector, Vector]:
        """(weights (C, k), biases (C,)) of `linear_discriminant` on φ.

        Rows of a class are taken to vary as public rows do, around class means that are shrunk according to the noise.
        """
        means, width = np.stack([density.mean for density in self.densities(reference)]), len(reference.mean)
        spread = np.trace(reference.covariance) / width
        return linear_discriminant(means, reference.covariance + 1e-6 * spread * np.eye(width), self.log_priors)

    @property
    def log_priors(self) -> Vector:
        """log p(c), (C,)."""
        return np.asarray(np.log(self.records / self.records.sum()))


def pool(releases: Sequence[Release], classes: int) -> Pooled:
    """Each client's s_c is n_c times the mean of the class, plus noise σ_i: least squares over the clients.

    mean_c = Σ_i n_ic s_ic/σ_i² / Σ_i n_ic²/σ_i², with variance 1/Σ_i n_ic²/σ_i². A client without the class has n = 0
    and so adds no noise to it. The n are the noisy counts, those that noise alone would explain set to 0, made to add
    up to the client's public size; a client none of whose counts stands out is taken to have all classes alike.
    """
    released = np.stack([(release.arrays["values"] * release.step).reshape(classes, -1) for release in releases])
    sums, counts = released[:, :, :-1], released[:, :, -1]
    noise = np.maximum([release.scale * release.step for release in releases], 1e-9)[:, None]
    sizes = np.array([float(release.records) for release in releases])[:, None]
    counts = np.where(counts > COUNT_THRESHOLD * noise, counts, 0.0)
    total = counts.sum(axis=1, keepdims=True)
    shares = np.where(total > 0, counts / np.where(total > 0, total, 1.0), 1.0 / classes)
    precision = np.maximum(np.square(shares * sizes / noise).sum(axis=0), 1e-12)
    means = np.einsum("ic,ick->ck", shares * sizes / noise**2, sums) / precision[:, None]
    return Pooled(means, precision**-0.5, np.maximum((shares * sizes).sum(axis=0), 1.0), shares)
