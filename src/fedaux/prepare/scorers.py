"""The scorers by name."""

from __future__ import annotations

from fedaux.errors import unknown
from fedaux.prepare.logistic import LogisticScorer
from fedaux.prepare.mean_embedding import MeanEmbeddingScorer
from fedaux.prepare.scoring import Scorer


def make_scorer(name: str, dims: int, ratio: str, ridge: float) -> Scorer:
    """`dims` and `ratio` are read by mean-embedding only, `ridge` by logistic only."""
    made: dict[str, Scorer] = {"mean-embedding": MeanEmbeddingScorer(dims, ratio), "logistic": LogisticScorer(ridge)}
    if name not in made:
        raise unknown("scorer", name, made)
    return made[name]
