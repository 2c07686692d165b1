"""The scorers that `privacy.scorer` can name: ours, or somebody's own function of the `PrivacyConfig`."""

from __future__ import annotations

from fedaux.config import PrivacyConfig
from fedaux.errors import import_function
from fedaux.prepare.logistic import LogisticScorer
from fedaux.prepare.mean_embedding import MeanEmbeddingScorer
from fedaux.prepare.scoring import Scorer


def make_scorer(privacy: PrivacyConfig) -> Scorer:
    if privacy.scorer == "mean-embedding":
        return MeanEmbeddingScorer(privacy.dims, privacy.ratio)
    if privacy.scorer == "logistic":
        return LogisticScorer(privacy.ridge)
    made: Scorer = import_function(privacy.scorer, "scorer")(privacy)
    return made
