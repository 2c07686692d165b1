"""The data that a server holds: D_aux, split once into D⁻ and D_distill, labelled test
records, and their features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from fedaux.config.distillation import TeachersConfig
from fedaux.core.arrays import Arrays
from fedaux.core.rng import numpy_stream
from fedaux.data.fingerprints import fingerprint_records
from fedaux.data.partition import AuxSplit
from fedaux.data.records import Indices, Records
from fedaux.models.inference import transform_rows
from fedaux.models.registry import standardisation
from fedaux.scoring.base import PublicScorer, Reference
from fedaux.scoring.features import H0
from fedaux.scoring.teacher_weights import LabelOf, PublicEmbedding


@dataclass(frozen=True, eq=False)
class PublicData:
    """`h0` has each prototype's frozen extractor, from the start of a run on
    (`Server.restore`).
    """

    aux: Records
    test: Records | None  # None: nothing is tested
    share_negatives: float
    seed: int
    head_only: bool = False
    h0: dict[str, H0] = field(default_factory=dict, repr=False)
    # features of it, by prototype
    _distill: dict[str, tuple[H0, Records]] = field(default_factory=dict, repr=False)

    @cached_property
    def split(self) -> AuxSplit:
        return AuxSplit.draw(
            len(self.aux), self.share_negatives, numpy_stream(self.seed, "aux")
        )

    @cached_property
    def distill(self) -> Records:
        """D_distill itself."""
        return self.aux.take(self.split.distill)

    def negatives(self, label: str) -> Records:
        """Features of D⁻ under a prototype's h0."""
        return self.h0[label].features(self.aux).take(self.split.negatives)

    @cached_property
    def distill_hash(self) -> str:
        return fingerprint_records(self.distill)

    def part(self, examples: int, round_: int) -> Indices | None:
        """Positions in D_distill of a round's examples, or None for all of them."""
        size = len(self.split.distill)
        if not 0 < examples < size:
            return None
        return np.sort(
            numpy_stream(self.seed, "distill-part", round_).choice(
                size, examples, replace=False
            )
        )

    def distill_inputs(self, label: str, part: Indices | None = None) -> Records:
        """D_distill as a prototype's learner is called with it: records, or features
        where only heads train.
        """
        inputs = self._distill_features(label) if self.head_only else self.distill
        return inputs if part is None else inputs.take(part)

    def _distill_features(self, label: str) -> Records:
        """Return the features of D_distill in one array, since every head of every
        round reads them.
        """
        h0 = self.h0[label]
        known = self._distill.get(label)
        if known is None or known[0] is not h0:
            features = h0.features(self.aux).take(self.split.distill)
            known = self._distill[label] = (
                h0,
                Records(transform_rows(features, lambda rows: rows)),
            )
        return known[1]

    def test_inputs(self, label: str) -> Records | None:
        """The test records as a prototype's learner is called with them."""
        return (
            self.h0[label].features(self.test)
            if self.head_only and self.test is not None
            else self.test
        )

    def standardisation(self) -> dict[str, Arrays]:
        """Mean and deviation of D⁻'s features under each prototype's h0."""
        return {
            label: standardisation(self.negatives(label).gather()) for label in self.h0
        }

    def publish(self, scorer: PublicScorer) -> dict[str, Arrays]:
        """What the scorer derives from D⁻ for every client of each prototype."""
        return {
            label: scorer.publish(self.negatives(label).gather()) for label in self.h0
        }

    def embedding(
        self,
        scorer: PublicScorer,
        public: Mapping[str, Arrays],
        label_of: LabelOf,
        teachers: TeachersConfig,
    ) -> PublicEmbedding:
        """φ of D⁻ and D_distill under each prototype's h0."""
        reference, embedded = {}, {}
        for label, arrays in public.items():
            embed = partial(scorer.embed, arrays)
            distill = self.h0[label].features(self.aux).take(self.split.distill)
            reference[label] = Reference(
                transform_rows(self.negatives(label), embed).astype(np.float64)
            )
            embedded[label] = transform_rows(distill, embed)
        return PublicEmbedding(scorer, teachers, public, reference, embedded, label_of)
