"""The dimension of φ and the split of a record's share between class sums, counts and
second moments, chosen on public data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedaux.core.arrays import Vector
from fedaux.privacy.mechanism import continuous_multiplier, unit_rows
from fedaux.scoring.base import Features, Labels, Reference
from fedaux.scoring.embedding import (
    ClassValues,
    Spectrum,
    embed,
    pool_classes,
    public_map,
    spectrum,
)
from fedaux.scoring.second_moments import Moments, Split, sensitivity, triangle

Rng = np.random.Generator
Candidate = tuple[int, Split]  # k, and (a, b, m)

MAX_DIMENSION = 512  # k; a release then has about 130,000 numbers
MOST_ENTRIES = 2**21  # of noise that is drawn at a time
DIMENSIONS = (16, 32, 64, 128, 256)


def _split(b: float, angle: float) -> Split:
    rest = math.sqrt(1 - b * b)
    return rest * math.cos(angle), b, rest * math.sin(angle)


SPLITS = tuple(  # (a, b, m) of norm 1, the counts' share first
    _split(b, angle)
    for b in (0.1, 0.2)
    for angle in (math.pi / 3.3, math.pi / 4, math.pi / 5.7)
)
# without second moments
PLAIN_SPLITS = ((math.sqrt(0.5), math.sqrt(0.5), 0.0), (math.sqrt(0.96), 0.2, 0.0))
LEAD = 0.02  # in accuracy on pseudo-classes, with which second moments are left out
# of accuracy above chance, at most: where heads of many releases are no better, noise
# hides which of them is best
NEAR_CHANCE = 0.1
# the class embedding's, which is taken there
DEFAULT_DIMENSION = 32
# in the same: dimensions that are no further apart count as level, and the widest is
# taken
LEVEL = 0.01
# of public rows to a pseudo-class: classes have several modes, and clusters are too
# easy to tell apart
_CLUSTERS = 10
PUBLIC_ROWS = 8192  # to plan with


@dataclass(frozen=True)
class PublicFacts:
    """What is public of a sum before anyone is asked."""

    epsilon: float = 1.0
    delta: float = 1e-5
    adjacency: str = "replace-one"
    records: int = 10_000  # of all clients together
    releases: int = 1  # under noise of their own: clients, or one for their secure sum
    # whether two classes may be sent as one signed sum: `records` were declared, and
    # releases serve for a head only
    signed: bool = False


def choose_split(
    negatives: Features,
    classes: int,
    facts: PublicFacts,
    embedding_dim: int = 0,
    of_negatives: Spectrum | None = None,
) -> tuple[int, Split]:
    """Choose (k, split) by the accuracy of noisy heads on pseudo-classes of D⁻: nothing
    is asked of a client.

    A pseudo-class is a union of clusters of public rows. The moments of two thirds of
    them, enlarged to the expected number of records and disturbed by seeded noise as
    strong as that of the releases, make a head, which is judged on the rest. Second
    moments are left out only where heads without them are ahead by `LEAD`: these have
    the public covariance, which is the right one for pseudo-classes and not quite that
    of private rows. Where the noise of many releases leaves all heads near chance, the
    trial cannot tell them apart, and the choice is the class embedding. For one sum, of
    dimensions that are level the widest is taken: real classes are further apart than
    pseudo-classes, so noise costs them less. The noise of many clients leaves no room
    for that (ten clients of 70 digits lost by it).

    Args:
        negatives: Features of D⁻, (|D⁻|, H).
        classes: The number of classes.
        facts: The budget, and how many records and releases are expected.
        embedding_dim: A dimension to choose the split for. 0 means choose it as well.
        of_negatives: Their `spectrum`, if it is known.

    Returns:
        The dimension, and (a, b, m).
    """
    if of_negatives is None:
        of_negatives = spectrum(negatives)
    order = np.random.default_rng(0).permutation(len(negatives))
    rows = negatives[order[:PUBLIC_ROWS]]
    groups = _pseudo_classes(rows, classes, of_negatives)
    dimensions = [embedding_dim] if embedding_dim else _dimensions(rows)
    plain: dict[Candidate, float] = {}  # accuracies without second moments
    moments: dict[Candidate, float] = {}
    for k in dimensions:
        mean, basis = public_map(rows, k, of_negatives)
        public = {"mean": mean.astype(np.float32), "basis": basis.astype(np.float32)}
        trial = _Trial(embed(public, rows), groups, classes, facts)
        plain |= {(k, split): trial.accuracy(split) for split in PLAIN_SPLITS}
        moments |= {(k, split): trial.accuracy(split) for split in SPLITS}
    judged = moments
    best_plain = max(plain.values())
    best_with_moments = max(moments.values())
    if best_plain >= best_with_moments + LEAD:
        judged = plain
    if facts.releases > 1 and _near_chance(max(best_plain, best_with_moments), classes):
        return _class_embedding(dimensions)
    if facts.releases == 1:
        return widest_level(judged)
    return max(judged, key=judged.__getitem__)


def _near_chance(accuracy: float, classes: int) -> bool:
    chance = 1 / classes
    return accuracy - chance < min(chance, NEAR_CHANCE)


def _class_embedding(dimensions: list[int]) -> Candidate:
    narrow = [k for k in dimensions if k <= DEFAULT_DIMENSION]
    return max(narrow or dimensions), PLAIN_SPLITS[0]


def _dimensions(rows: Features) -> list[int]:
    """The dimensions to choose from: those of `DIMENSIONS` that rows have, and all."""
    widest = min(rows.shape[1], len(rows) - 1, MAX_DIMENSION)
    smaller = [k for k in DIMENSIONS if k < widest]
    return [*smaller, widest]


def widest_level(judged: Mapping[Candidate, float]) -> Candidate:
    """Return the best choice of the widest dimension that is level with the best of
    all.
    """
    least = max(judged.values()) - LEVEL
    level = [choice for choice in judged if judged[choice] >= least]
    return max(level, key=lambda choice: (choice[0], judged[choice]))


def _pseudo_classes(rows: Features, classes: int, of_negatives: Spectrum) -> Labels:
    from sklearn.cluster import KMeans

    mean, basis = public_map(rows, 64, of_negatives)
    directions = unit_rows((rows - mean) @ basis)
    per_class = max(1, min(_CLUSTERS, len(rows) // (10 * classes)))
    clusters = min(len(rows), classes * per_class)
    k_means = KMeans(clusters, n_init=1, random_state=0)
    cluster = k_means.fit_predict(directions)
    shuffled = np.random.default_rng(0).permutation(clusters)
    return np.asarray(shuffled[cluster] % classes, np.int64)


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
        """(share and mean φ of each pseudo-class, mean φφᵀ). Clients of one class each
        have them all alike.
        """
        rows = self.rows[self.learn]
        one_hot = np.eye(self.classes)[self.groups[self.learn]]
        counts = one_hot.sum(axis=0)
        present = counts > 0
        shares = present / present.sum()
        if self.facts.releases == 1:
            shares = counts / counts.sum()
        divisors = np.maximum(counts, 1.0)
        means = (one_hot.T @ rows) / divisors[:, None]
        weights = one_hot @ (shares / divisors)
        second = (rows.T * weights) @ rows
        return shares, means, second

    def accuracy(self, split: Split, draws: int = 3) -> float:
        """Return the mean accuracy on the rest, over draws of the noise."""
        rows = self.rows[~self.learn]
        groups = self.groups[~self.learn]
        accuracies = []
        for draw in range(draws):
            weights, bias = self.head(split, np.random.default_rng(draw))
            predicted = (rows @ weights.T + bias).argmax(axis=1)
            accuracies.append(float(np.mean(predicted == groups)))
        return float(np.mean(accuracies))

    def head(
        self, split: Split, rng: Rng, tempered: bool = False
    ) -> tuple[Vector, Vector]:
        """The head of releases with the noise that they would have.

        Each of several clients has one class, or as few as there are clients for, which
        is the hardest case: what it has must stand out of the noise on its own counts.
        """
        facts = self.facts
        a, b, m = split
        shares, means, second = self.moments
        noise = continuous_multiplier(facts.epsilon, facts.delta)
        noise *= sensitivity(np.array(split), facts.adjacency)
        # of more, the noise on sums is that of the mean
        clients = min(facts.releases, max(1, MOST_ENTRIES // means.size))
        sum_noise = noise / a * math.sqrt(clients / facts.releases)
        count_noise = noise / b
        records = facts.records / facts.releases
        released = []
        for counts in self._counts(clients, shares, records):
            sums = counts[:, None] * means + rng.normal(0, sum_noise, means.shape)
            noisy_counts = counts + rng.normal(0, count_noise, counts.shape)
            released.append(
                ClassValues(sums, noisy_counts, sum_noise, count_noise, records)
            )
        pooled = pool_classes(released)
        if not m:
            return pooled.discriminant(self.reference)
        deviation = noise / m * math.sqrt(facts.releases) / facts.records
        second = second + symmetric_noise(len(second), deviation, rng)
        moments = Moments(pooled, second, deviation)
        return moments.discriminant(self.reference, tempered)

    def _counts(self, clients: int, shares: Vector, records: float) -> Vector:
        """Return the records of each class at each client, (clients, C): classes are
        dealt out in turn.
        """
        dealt = np.zeros((clients, self.classes))
        turns = np.arange(max(clients, self.classes))
        classes = turns % self.classes
        dealt[turns % clients, classes] = shares[classes]
        totals = np.maximum(dealt.sum(axis=1, keepdims=True), 1e-12)
        return np.asarray(records * dealt / totals)


def symmetric_noise(k: int, deviation: float, rng: Rng) -> Vector:
    """What noise on the weighted triangle is as a matrix: `deviation` on the diagonal,
    1/√2 of it elsewhere.
    """
    row, column, weight = triangle(k)
    noise = np.zeros((k, k))
    noise[row, column] = rng.normal(0, deviation, len(row)) / weight
    return noise + np.triu(noise, 1).T
