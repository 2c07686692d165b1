"""What the server knows before any client has spoken: h0, the map that the scorer publishes, the public rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from safetensors import numpy as safetensors

from fedaux.core.errors import FedauxError
from fedaux.core.io import write_atomically
from fedaux.core.messages import Arrays, PrepareOrder, Release
from fedaux.core.rng import numpy_stream
from fedaux.data.auxiliary import AuxSplit
from fedaux.data.records import Records
from fedaux.flower.user_model import Extractor, Given
from fedaux.models import flatten_state, load_state
from fedaux.models.inference import predict, transform_rows
from fedaux.privacy.module_validation import validate_module
from fedaux.scoring.base import Features, Reference, Scorer
from fedaux.scoring.frozen_extractor import extractor_hash
from fedaux.scoring.teacher_weights import Certainty, Weighing

NEGATIVES = 0.2  # of the public rows, to score against; the others are distilled on
MODEL = "model"  # the one prototype there is


class KeptError(FedauxError, ValueError):
    """A file that was kept from another app."""


@dataclass(frozen=True, eq=False)
class Question:
    """What every client is asked with, to the bit: a vault knows the question by these arrays."""

    h0: Arrays
    map: Arrays  # what the scorer publishes

    def order(self, node: int, scorer: Scorer, classes: int) -> PrepareOrder:
        return PrepareOrder(
            client=str(node),
            prototype=MODEL,
            scorer=scorer.name,
            classes=classes,
            size=scorer.size(self.map),
            h0=extractor_hash(self.h0, MODEL),
            heard=0,
            extractor=self.h0,
            public=self.map,
        )

    def save(self, path: Path) -> None:
        named = {"h0": self.h0, "map": self.map}
        flat = {f"{room}.{name}": array for room, arrays in named.items() for name, array in arrays.items()}
        write_atomically(path, safetensors.save({key: np.ascontiguousarray(array) for key, array in flat.items()}))

    @classmethod
    def load(cls, path: Path) -> Self:
        named: dict[str, Arrays] = {"h0": {}, "map": {}}
        for key, array in safetensors.load_file(path).items():
            room, _, name = key.partition(".")
            named[room][name] = array
        return cls(**named)


@dataclass(frozen=True, eq=False)
class Public:
    """The server's side of P2, for the one model of an app."""

    scorer: Scorer
    question: Question
    distill: Records
    reference: Reference  # φ(D⁻)
    embedded: Features  # φ(D_distill)
    max_share: float

    @classmethod
    def of(
        cls, extractor: Extractor, rows: Given, scorer: Scorer, keep: Path | None, seed: int, max_share: float
    ) -> Self:
        """Splits the rows and computes their features, under the model's own weights or under those that were kept."""
        split = AuxSplit.draw(len(rows), NEGATIVES, numpy_stream(seed, "aux"))
        kept = Question.load(keep) if keep is not None and keep.exists() else None
        if kept is not None:
            _take_up(extractor, kept, keep)
        validate_module(extractor)  # every client would refuse it, and keep the reason to itself
        seen = Records(predict(extractor, rows))
        question = kept or Question(flatten_state(extractor.model), scorer.publish(seen.take(split.negatives).gather()))
        if keep is not None and kept is None:
            question.save(keep)
        embed = partial(scorer.embed, question.map)
        reference = Reference(transform_rows(seen.take(split.negatives), embed).astype(np.float64))
        embedded = transform_rows(seen.take(split.distill), embed)
        return cls(scorer, question, rows.take(split.distill), reference, embedded, max_share)

    def weighing(self, releases: dict[str, Release], teachers: list[str]) -> Weighing:
        """Eq. 4's weights of these teachers, from all releases there are."""
        everyone = dict.fromkeys(releases, MODEL)
        maps, references, embedded = {MODEL: self.question.map}, {MODEL: self.reference}, {MODEL: self.embedded}
        certainty = Certainty(self.scorer, "odds", maps, references, embedded, everyone, self.max_share)
        return certainty.among(releases, teachers)


def _take_up(extractor: Extractor, kept: Question, path: Path | None) -> None:
    try:
        load_state(extractor.model, kept.h0)
    except ValueError as error:
        raise KeptError(
            f"keep = {str(path)!r} is of another model: name another file. To the clients that is another question, "
            "which they answer if their setting releases allows it"
        ) from error
