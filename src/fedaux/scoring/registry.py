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
    privacy: PrivacyConfig,
    classes: int,
    releases: int = 1,
    records: int = 0,
    heads_only: bool = False,
) -> PublicScorer:
    """Make the scorer of these settings; how many `releases` and `records` are expected
    is for what a server publishes.

    The settings' own number of records comes first. `heads_only`: nobody is weighed as
    a teacher by the releases.
    """
    if privacy.scorer == "class-embedding":
        return ClassEmbeddingScorer(classes, privacy.dimension)
    if privacy.scorer == "class-moments":
        declared = privacy.expected_records or records
        facts = PublicFacts(
            privacy.epsilon,
            privacy.delta,
            privacy.adjacency,
            declared or 10_000,
            releases,
            signed=heads_only and classes == 2 and declared > 0,
        )
        return ClassMomentsScorer(classes, privacy.embedding_dim, facts=facts)
    if privacy.scorer == "logistic":
        return LogisticScorer(privacy.ridge)
    scorer: PublicScorer = import_function(privacy.scorer, "scorer")(privacy, classes)
    return scorer
