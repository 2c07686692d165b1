"""The scorers that `privacy.scorer` can name: ours, or somebody's own function of (`PrivacyConfig`, classes)."""

from __future__ import annotations

from fedaux.config import PrivacyConfig
from fedaux.errors import import_function
from fedaux.prepare.class_embedding import ClassEmbeddingScorer
from fedaux.prepare.logistic import LogisticScorer
from fedaux.prepare.mean_embedding import MeanEmbeddingScorer
from fedaux.prepare.scoring import Scorer


def make_scorer(privacy: PrivacyConfig, classes: int) -> Scorer:
    if privacy.scorer == "class-embedding":
        return ClassEmbeddingScorer(classes, privacy.dims)
    if privacy.scorer == "mean-embedding":
        return MeanEmbeddingScorer(privacy.dims, privacy.ratio)
    if privacy.scorer == "logistic":
        return LogisticScorer(privacy.ridge)
    made: Scorer = import_function(privacy.scorer, "scorer")(privacy, classes)
    return made
