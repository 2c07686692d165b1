"""Two classes in one signed sum: a record adds v = [±a·φ | ±b | b·φ], + in class 1 and −
in class 0, with a² + 2b² = 1.

The difference of the two classes is what a head needs most, and one sum of it has √2 less
noise than the difference of two sums. The plain sum of φ is disturbed more, and does not
cost anything where one record is exchanged: it says how far private rows are from the
public mean. How φ varies comes from public rows, and how many records there are is
declared. It is for few records (`choose_signed`).

The head is a linear regression of s = ±1 on φ with the public covariance C. Along the
eigenvectors of C, the prior variance of the covariance of φ and s is proportional to
λ^`POWER`: directions in which public rows vary most are taken to tell most, so noise is
not amplified in the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedaux.core.arrays import Arrays, Vector
from fedaux.messages import Release
from fedaux.privacy.mechanism import continuous_multiplier
from fedaux.scoring.base import Features, Reference
from fedaux.scoring.embedding import (
    ClassValues,
    Spectrum,
    embed,
    public_map,
)
from fedaux.scoring.moments_plan import MAX_DIMENSION, PUBLIC_ROWS, PublicFacts
from fedaux.scoring.second_moments import exact_split, sensitivity

SIGNED_SPLIT = (math.sqrt(0.82), 0.3)  # a, b
POWER = 4.0  # of the public variance: see above
EXPLAINED = 0.2  # share of the variance of s that φ explains, a priori
BALANCE = 0.15  # a priori standard deviation of the mean of s
MOST_BALANCE = 0.98
SHIFT_DEVIATIONS = 2.0  # of its noise that the plain sum must be off the public mean
LEAST_VARIANCE = 1e-6  # of the largest: of a direction that counts
# second moments are sent from so many records per direction on, and up to this noise, in
# units of their mean eigenvalue
RECORDS_PER_DIRECTION = 200
MOMENTS_NOISE = 2.0
SIGNED_DIMENSIONS = (4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, eq=False)
class SignedSum:
    """What the releases of any number of clients, or of a sum over them, say
    together.
    """

    mean: Vector  # (k,): of ±φ over all records
    balance: float  # the mean of ±1
    noise: float  # standard deviation on each coordinate of `mean`
    balance_noise: float
    plain_mean: Vector  # (k,): of φ
    records: float

    @classmethod
    def of(cls, public: Arrays, releases: Sequence[Release]) -> SignedSum:
        """Add up the releases."""
        a, b = exact_split(public)
        values = sum(release.arrays["values"] * release.step for release in releases)
        total = np.asarray(values, np.float64)
        k = public["basis"].shape[1]
        noise = math.hypot(*(release.scale * release.step for release in releases))
        records = sum(release.records for release in releases)
        return cls(
            total[:k] / (a * records),
            float(total[k] / (b * records)),
            noise / (a * records),
            noise / (b * records),
            total[k + 1 :] / (b * records),
            records,
        )

    def head(
        self, reference: Reference, class_weights: Vector | float = 1.0
    ) -> tuple[Vector, Vector]:
        """(weights (2, k), biases (2,)) on φ, in the scale of logits."""
        balance = self._shrunk_balance()
        variances, directions = _directions(reference)
        # the covariance of φ and s, along each direction
        noise = self.noise**2 + variances / self.records
        shift, shift_noise = self._shift(reference, variances, directions)
        mean = reference.mean + directions @ shift
        found = directions.T @ (self.mean - balance * mean)
        noise = noise + balance**2 * shift_noise
        prior = prior_variances(variances)
        weights = prior / (prior + noise) * found / variances
        uncertain = prior * noise / (prior + noise) / np.square(variances)
        explained = float((np.square(weights) * variances).sum())
        scale = 2 / max(1 - balance**2 - explained, 0.05)
        # a posterior averaged over normal noise of its logit (MacKay 1992)
        spread = scale**2 * float((uncertain * variances).sum())
        scale /= math.sqrt(1 + math.pi * spread / 8)
        on_phi = scale * (directions @ weights)
        at_mean = scale * balance
        if not np.all(np.asarray(class_weights) == 1):
            at_mean += _shift_by_weights(balance, explained, scale, class_weights)
        bias = at_mean - on_phi @ mean
        return np.stack([-on_phi / 2, on_phi / 2]), np.array([-bias / 2, bias / 2])

    def _shift(
        self, reference: Reference, variances: Vector, directions: Vector
    ) -> tuple[Vector, Vector]:
        """(how far the mean of private rows is from the public one, its uncertainty as a
        variance) along each direction.

        A priori the shift has a share of the public variance, which is what the plain
        sum shows beyond its noise: none, if that could be noise.
        """
        off = directions.T @ (self.plain_mean - reference.mean)
        noise = self.balance_noise**2 + variances / self.records
        allowed = noise.sum() + SHIFT_DEVIATIONS * math.sqrt(2 * (noise**2).sum())
        beyond = float(np.square(off).sum() - allowed)
        prior = max(beyond, 0.0) / float(variances.sum()) * variances
        trust = prior / (prior + noise)
        return trust * off, trust * noise

    def _shrunk_balance(self) -> float:
        trust = BALANCE**2 / (BALANCE**2 + self.balance_noise**2)
        return float(np.clip(trust * self.balance, -MOST_BALANCE, MOST_BALANCE))


def _shift_by_weights(
    balance: float, explained: float, scale: float, class_weights: Vector | float
) -> float:
    """How much further up the logits are at the mean of all records if a record of each
    class counts so much.

    Weights change the balance b = p₁ − p₀ to b′. The means of the classes stay, and so
    does how records vary around them, and with it the direction w. The mean of all
    records moves by (b′ − b)·c/(1 − b²), where c is the covariance of φ and s. With the
    share E of s that is explained, R² = E/(1 − b²) and V = (1 − b²)/(1 − b′²), the
    regression of the weighted records has the logit scale·b′·((1 − R²)·V + R²) at their
    mean, and that of all has scale·b at theirs.
    """
    of_class = np.broadcast_to(np.asarray(class_weights, np.float64), 2)
    weighed = of_class * np.array([1 - balance, 1 + balance])
    after = float((weighed[1] - weighed[0]) / weighed.sum())
    spread, spread_after = 1 - balance**2, 1 - after**2
    share = explained / spread
    kept = (1 - share) * spread / spread_after + share
    moved = (after - balance) / spread * explained
    return scale * (after * kept - balance - moved)


def _directions(reference: Reference) -> tuple[Vector, Vector]:
    """(variances, directions in columns) of public rows."""
    variances, directions = np.linalg.eigh(reference.covariance)
    least = max(LEAST_VARIANCE * float(variances.max()), 1e-12)
    return np.maximum(variances, least), directions


def prior_variances(variances: Vector) -> Vector:
    """A priori variance of the covariance of φ and s along each direction: together
    they explain the share `EXPLAINED` of s.
    """
    powers = variances**POWER
    return np.asarray(EXPLAINED * powers / (powers / variances).sum())


def signed_counts(public: Arrays, values: Vector, records: float) -> Vector:
    """The records of each class, (2,), from a release in units and their number."""
    place = public["basis"].shape[1]
    difference = values[place] / exact_split(public)[1]
    return np.array([records - difference, records + difference]) / 2


def signed_class_values(public: Arrays, release: Release) -> ClassValues:
    """What a signed release says of each class. The plain sum brings most of the
    noise.
    """
    a, b = exact_split(public)
    k = public["basis"].shape[1]
    values = release.arrays["values"] * release.step
    noise = release.scale * release.step
    half = values[:k] / (2 * a)
    rest = values[k + 1 :] / (2 * b)
    return ClassValues(
        sums=np.stack([rest - half, rest + half]),
        counts=signed_counts(public, values, release.records),
        noise=noise * math.hypot(1 / a, 1 / b) / 2,
        count_noise=noise / (2 * b),
        records=release.records,
    )


def choose_signed(
    negatives: Features,
    facts: PublicFacts,
    embedding_dim: int = 0,
    of_negatives: Spectrum | None = None,
) -> int:
    """Choose the dimension k of a signed sum, or 0 where second moments are worth
    sending.

    For each dimension, the prior says how much of s a head would explain after the noise
    of the releases. The dimension with the most is taken. Nothing is asked of a client.

    Args:
        negatives: Features of D⁻, (|D⁻|, H).
        facts: The budget, and how many records and releases are expected.
        embedding_dim: A dimension to use; 0: choose it.
        of_negatives: Their `spectrum`, if it is known.

    Returns:
        The dimension, or 0.
    """
    order = np.random.default_rng(0).permutation(len(negatives))
    rows = negatives[order[:PUBLIC_ROWS]]
    widest = min(rows.shape[1], len(rows) - 1, MAX_DIMENSION)
    dimensions = [*(k for k in SIGNED_DIMENSIONS if k < widest), widest]
    if embedding_dim:
        dimensions = [embedding_dim]
    spectra = {k: _spectrum_of_phi(rows, k, of_negatives) for k in dimensions}
    shares = prior_variances(spectra[dimensions[-1]]) / spectra[dimensions[-1]]
    a, b = SIGNED_SPLIT
    noise = continuous_multiplier(facts.epsilon, facts.delta)
    noise *= math.sqrt(facts.releases) / facts.records
    sum_noise = noise * sensitivity(np.array([a, b]), facts.adjacency) / a
    explained: dict[int, float] = {}
    for k, variances in spectra.items():
        prior = shares[: len(variances)] * variances
        error = sum_noise**2 + variances / facts.records
        known = prior / (prior + error)
        explained[k] = float((shares[: len(variances)] * known).sum())
    best = max(explained, key=explained.__getitem__)
    k = len(spectra[best])
    few = facts.records < RECORDS_PER_DIRECTION * k
    return k if few or _moments_noise(k, noise, facts) > MOMENTS_NOISE else 0


def _spectrum_of_phi(rows: Features, k: int, of_negatives: Spectrum | None) -> Vector:
    """The variances of φ, the largest first."""
    mean, basis = public_map(rows, k, of_negatives)
    public = {"mean": mean.astype(np.float32), "basis": basis.astype(np.float32)}
    variances, _ = _directions(Reference(embed(public, rows)))
    return variances[::-1]


def _moments_noise(k: int, noise: float, facts: PublicFacts) -> float:
    """What noise adds to the largest eigenvalue of the mean of φφᵀ, in units of their
    mean, 1/k.

    Noise of deviation τ on the diagonal reaches τ√(2k). Second moments are taken to have
    half of a record's squared norm.
    """
    deviation = noise * math.sqrt(2)
    deviation *= sensitivity(np.array([1.0, 0.0]), facts.adjacency)
    return k * math.sqrt(2 * k) * deviation
