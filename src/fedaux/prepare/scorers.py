"""The scorers that `privacy.scorer` can name."""

from __future__ import annotations

from fedaux.config import PrivacyConfig
from fedaux.prepare.logistic import LogisticScorer
from fedaux.prepare.mean_embedding import MeanEmbeddingScorer
from fedaux.prepare.scoring import Scorer


def make_scorer(privacy: PrivacyConfig) -> Scorer:
    if privacy.scorer == "mean-embedding":
        return MeanEmbeddingScorer(privacy.dims, privacy.ratio)
    return LogisticScorer(privacy.ridge)
