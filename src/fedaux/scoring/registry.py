"""Scorers by name: built-in, or a user's `module:function` of (`PrivacyConfig`,
classes).
"""

from __future__ import annotations

from fedaux.config.sections import PrivacyConfig
from fedaux.core.errors import import_function
from fedaux.scoring.base import PublicScorer
from fedaux.scoring.class_moments import ClassMomentsScorer
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer
from fedaux.scoring.moments_plan import PublicFacts


def make_scorer(
    privacy: PrivacyConfig, classes: int, releases: int = 1, records: int = 0
) -> PublicScorer:
    """Make the scorer of these settings; how many `releases` and `records` are expected
    is for what a server publishes.

    The settings' own number of records comes first.
    """
    if privacy.scorer == "class-embedding":
        return ClassEmbeddingScorer(classes, privacy.dimension)
    if privacy.scorer == "class-moments":
        expected = privacy.expected_records or records or 10_000
        facts = PublicFacts(
            privacy.epsilon, privacy.delta, privacy.adjacency, expected, releases
        )
        return ClassMomentsScorer(classes, privacy.embedding_dim, facts=facts)
    if privacy.scorer == "logistic":
        return LogisticScorer(privacy.ridge)
    scorer: PublicScorer = import_function(privacy.scorer, "scorer")(privacy, classes)
    return scorer
