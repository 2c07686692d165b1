"""P2 at a client: the summary of its records that a scorer asks for, without noise yet.

Each built-in scorer has a module here. A scorer of the user's own brings the method
`summarise` with it (`scoring.base.Scorer`).
"""

from __future__ import annotations

from typing import cast

from fedaux.client.summaries.embedding import class_sums, embed_per_record
from fedaux.client.summaries.logistic import separation
from fedaux.client.summaries.moments import class_moments
from fedaux.core.arrays import Arrays
from fedaux.privacy.mechanism import Summary
from fedaux.scoring.base import Features, Labels, PublicScorer, Scorer, Shares
from fedaux.scoring.class_moments import ClassMomentsScorer
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer


def summarise(
    scorer: PublicScorer,
    public: Arrays,
    features: Features,
    labels: Labels,
    adjacency: str,
    size: int,
    shares: Shares,
) -> Summary:
    """Summarise a client's records as the integers to release, with their sensitivity
    to one privacy unit. The arguments are those of `Scorer.summarise`.
    """
    if hasattr(scorer, "summarise"):
        own_scorer = cast(Scorer, scorer)
        return own_scorer.summarise(public, features, labels, adjacency, size, shares)
    if isinstance(scorer, ClassMomentsScorer):
        return class_moments(scorer, public, features, labels, adjacency, size, shares)
    if isinstance(scorer, ClassEmbeddingScorer):
        embedded = embed_per_record(public, features)
        return class_sums(embedded, labels, scorer.classes, adjacency, size, shares)
    if isinstance(scorer, LogisticScorer):
        return separation(scorer, public, features, adjacency, size, shares)
    raise TypeError(f"Cannot summarise: {scorer.name!r} has no method summarise.")
