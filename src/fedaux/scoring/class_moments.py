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
that of the class embedding, with the public covariance. Few records of two classes are
one signed sum (`scoring.signed_sums`), whose split has two shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedaux.core.arrays import Arrays, Vector
from fedaux.core.failures import OrderError
from fedaux.messages import Release
from fedaux.privacy.mechanism import GRID, Bound
from fedaux.scoring.base import Features, Reference
from fedaux.scoring.embedding import (
    ClassEmbeddingScorer,
    ClassValues,
    HeadArrays,
    Spectrum,
    on_features,
    public_map,
    spectrum,
)
from fedaux.scoring.moments_plan import MAX_DIMENSION, PublicFacts, choose_split
from fedaux.scoring.second_moments import (
    HEADS,
    Moments,
    exact_split,
    is_signed,
    public_split,
    second_size,
    sensitivity,
    values_by_class,
)
from fedaux.scoring.signed_sums import (
    SIGNED_SPLIT,
    SignedSum,
    choose_signed,
    signed_class_values,
    signed_counts,
)

ROW_STEPS = 2**20  # to a row of norm 1; times the steps of a share it makes GRID
# to a share of 1; so a unit has at most this many records
SHARE_STEPS = GRID // ROW_STEPS


@dataclass(frozen=True)
class ClassMomentsScorer(ClassEmbeddingScorer):
    """Class sums, counts and second moments of φ. As teachers, classes are weighed as
    by the class embedding.
    """

    embedding_dim: int = 0  # 0: chosen on public data
    name: str = "class-moments"
    facts: PublicFacts = field(default_factory=PublicFacts)

    def publish(self, negatives: Features) -> Arrays:
        """Add the split to the public map, both chosen by `choose_signed` or
        `choose_split` unless a dimension is given.
        """
        of_negatives = spectrum(negatives)
        k, split = self._choose(negatives, of_negatives)
        mean, basis = public_map(negatives, k, of_negatives)
        return {
            "mean": mean.astype(np.float32),
            "basis": basis.astype(np.float32),
            "split": public_split(*split),
        }

    def _choose(
        self, negatives: Features, of_negatives: Spectrum
    ) -> tuple[int, tuple[float, ...]]:
        if self.facts.signed and self.classes == 2:
            k = choose_signed(negatives, self.facts, self.embedding_dim, of_negatives)
            if k:
                return k, SIGNED_SPLIT
        return choose_split(
            negatives, self.classes, self.facts, self.embedding_dim, of_negatives
        )

    def counts(self, public: Arrays, values: Vector) -> Vector:
        """Records of each class; a signed sum says how many more one class has, and the
        declared number does the rest.
        """
        if is_signed(exact_split(public)):
            return signed_counts(public, values, self.facts.records)
        first = self.classes * (public["basis"].shape[1] + 1)
        by_class = values[:first].reshape(self.classes, -1)
        share = exact_split(public)[1]
        return np.asarray(by_class[:, -1] / share)

    def class_values(self, public: Arrays, release: Release) -> ClassValues:
        if is_signed(exact_split(public)):
            return signed_class_values(public, release)
        return values_by_class(public, self.classes, release)

    def head(
        self,
        public: Arrays,
        reference: Reference,
        releases: Sequence[Release],
        kind: str = "discriminant",
        *,
        weights: Vector | float = 1.0,
    ) -> HeadArrays:
        """Compute a head on h0's own features. `kind` is one of `HEADS`, where there
        are second moments.
        """
        split = exact_split(public)
        if is_signed(split):
            signed = SignedSum.of(public, releases)
            return on_features(public, *signed.head(reference, weights))
        if not split[2]:
            return super().head(public, reference, releases, weights=weights)
        moments = Moments.of(public, self.classes, releases)
        moments = replace(moments, pooled=replace(moments.pooled, weights=weights))
        return on_features(public, *HEADS[kind](moments, reference))

    def size(self, public: Arrays) -> int:
        """Refuse a split that is none, and a map that is too wide: before anything is
        entered in the account.
        """
        split = exact_split(public)
        k = int(public["basis"].shape[1])
        if k > MAX_DIMENSION:
            raise OrderError(
                f"Cannot make a release: the public map has {k} dimensions, and second "
                f"moments have at most {MAX_DIMENSION}. Set a smaller "
                "privacy.embedding_dim."
            )
        if not is_signed(split):
            return self.classes * (k + 1) + second_size(k, split)
        if self.classes != 2:
            raise OrderError(
                "Cannot make a release: the public array 'split' has two shares, for a "
                f"signed sum, which is for two classes, not {self.classes}. Set the "
                "same classes at the server and at every site."
            )
        return k + 1 + second_size(k, split)

    def bound(self, public: Arrays, adjacency: str, size: int) -> Bound:
        """In steps of 1/GRID. Rounding moves each coordinate of a row by less than 1
        step of ROW_STEPS.

        So it moves the difference of two rows by less than 2 on each coordinate they
        share, and by less than 1 on each other: by less than 2√size together.
        Arithmetic in double precision has a relative error of 2⁻⁴⁶, less than 2 steps.
        """
        exact = ROW_STEPS * sensitivity(exact_split(public), adjacency)
        rounded = exact + 2 * math.sqrt(self.size(public)) + 2
        steps = SHARE_STEPS * math.ceil(rounded)
        return Bound(float(GRID * size), 1.0 / GRID, float(steps))
