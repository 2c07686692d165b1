"""Scorers by name: built-in, or a user's `module:function` of (`PrivacyConfig`, classes)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedaux.config.sections import PrivacyConfig
from fedaux.core.errors import import_function
from fedaux.core.messages import OrderError, PrepareOrder, Release
from fedaux.data.records import Records
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import release_mechanism
from fedaux.privacy.mechanism import release
from fedaux.privacy.units import Units, public_size
from fedaux.scoring.base import Features, Scorer
from fedaux.scoring.class_moments import ClassMomentsScorer, PublicFacts
from fedaux.scoring.embedding import ClassEmbeddingScorer, MeanEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer


def make_scorer(privacy: PrivacyConfig, classes: int, releases: int = 1, records: int = 0) -> Scorer:
    """Make the scorer of these settings; how many `releases` and `records` are expected is for what a server publishes.

    The settings' own number of records comes first.
    """
    if privacy.scorer == "class-embedding":
        return ClassEmbeddingScorer(classes, privacy.dimension)
    if privacy.scorer == "class-moments":
        expected = privacy.expected_records or records or 10_000
        facts = PublicFacts(privacy.epsilon, privacy.delta, privacy.adjacency, expected, releases)
        return ClassMomentsScorer(classes, privacy.embedding_dim, facts=facts)
    if privacy.scorer == "mean-embedding":
        return MeanEmbeddingScorer(privacy.dimension)
    if privacy.scorer == "logistic":
        return LogisticScorer(privacy.ridge)
    scorer: Scorer = import_function(privacy.scorer, "scorer")(privacy, classes)
    return scorer


def stored_release(
    order: PrepareOrder,
    request: str,
    store: BudgetStore,
    own_data: Callable[[], tuple[Records, Features]],
    honest: int = 1,
) -> Release:
    """P2, P3 on the client: one release, entered in the account before a record is read, and stored before it is sent.

    `request` identifies the question: asked again, it gets the stored answer. An order whose size is not that of its
    public arrays would be entered at another noise than its release has. `honest`: as in `mechanism.release`.
    """
    size = make_scorer(store.privacy, order.classes).size(order.public)
    if size != order.size:
        raise OrderError(f"the order says that a release has {order.size} numbers, its public arrays make it {size}")
    mechanism = release_mechanism(size, store.privacy)

    def make() -> Release:
        return release_scores(order, *own_data(), store.privacy, honest)

    stored = store.release(request, mechanism, make, order.known_entries, order.known_signature)
    return replace(stored, client=order.client)


def release_scores(
    order: PrepareOrder, records: Records, features: Features, privacy: PrivacyConfig, honest: int = 1
) -> Release:
    """P2, P3 from per-record features. Budget and noise are those of the client's settings."""
    units = Units.of(records, privacy.unit, privacy.max_records_per_person)
    scorer, size = make_scorer(privacy, order.classes), public_size(records, privacy)
    summary = scorer.summarise(order.public, features, records.labels, privacy.adjacency, size, units.shares)
    if len(summary.values) != order.size:  # the account has an entry for the size in the order
        raise OrderError(f"the order says that a release has {order.size} numbers, this one has {len(summary.values)}")
    return release(summary, order.client, privacy, honest)
