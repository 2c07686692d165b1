"""B7: the teacher weights of a round's clients on D_distill, beside the same weights by
hand.

Bare arm: what eq. 4 takes in numpy, all weights in one array. Its products whiten
D_distill for each class density and for D⁻, in double precision, and mix the densities,
(clients, C) @ (C, N), in single precision as ours do. One pass over the weights
follows, a division by the largest and a lower bound: without it the products are no
weights. Ours takes the last product twice: once for peak and sum, once when a round
asks for a client's weights, so that they need no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import Row, compare
from fedaux.client.summaries import summarise
from fedaux.config.distillation import TeachersConfig
from fedaux.config.sections import PrivacyConfig
from fedaux.messages import Release
from fedaux.privacy.mechanism import release
from fedaux.scoring.base import Features, Labels, Reference, Vector
from fedaux.scoring.embedding import ClassEmbeddingScorer, Gaussian, pool
from fedaux.scoring.teacher_weights import MIN_WEIGHT, PublicEmbedding

CLASSES = 10
DIM = 32
WIDTH = 64
RECORDS = 500
NEGATIVES = 4_000
EXAMPLES = 20_000


def cohort(clients: int) -> tuple[PublicEmbedding, dict[str, Release]]:
    """Clients of a few classes each, with real releases on synthetic features."""
    rng = np.random.default_rng(0)
    scorer = ClassEmbeddingScorer(CLASSES, DIM)
    centres = rng.normal(size=(CLASSES, WIDTH))

    def features(labels: Labels) -> Vector:
        return np.asarray(centres[labels] + rng.normal(size=(len(labels), WIDTH)))

    negatives, distill = (
        features(rng.integers(CLASSES, size=size)) for size in (NEGATIVES, EXAMPLES)
    )
    public = scorer.publish(negatives)
    privacy = PrivacyConfig(epsilon=1.0, unsafe_seed=0)
    releases = {}
    for number in range(clients):
        name = f"client-{number:04}"
        mixture = rng.dirichlet(np.full(CLASSES, 0.3))
        labels = rng.choice(CLASSES, RECORDS, p=mixture)
        shares = np.ones(RECORDS)
        summary = summarise(
            scorer, public, features(labels), labels, "replace-one", RECORDS, shares
        )
        releases[name] = release(summary, name, privacy)
    embedded = {"p": scorer.embed(public, distill).astype(np.float32)}
    reference = {"p": Reference(scorer.embed(public, negatives))}
    return PublicEmbedding(
        scorer, TeachersConfig(), {"p": public}, reference, embedded, lambda _: "p"
    ), releases


def ours(embedding: PublicEmbedding, releases: dict[str, Release]) -> float:
    """As a round takes them: one client after the other, with its share."""
    # a copy without last round's fit
    weights = replace(embedding).teacher_weights(releases, list(releases))
    return sum(weights.share(weights.of(client)) for client in releases)


def bare(embedding: PublicEmbedding, releases: dict[str, Release]) -> Features:
    reference = embedding.reference["p"]
    rows = embedding.embedded["p"].astype(np.float64)
    pooled = pool(list(releases.values()), CLASSES)
    public = Gaussian(reference.mean, reference.covariance)

    def log_density(density: Any) -> Vector:
        whitening = density.cov_object
        z = rows @ whitening._LP - density.mean @ whitening._LP
        return np.asarray(-0.5 * (np.einsum("nk,nk->n", z, z) + whitening.log_pdet))

    background = log_density(public._frozen)
    ratios = (
        np.stack([log_density(density._frozen) for density in pooled.densities(public)])
        - background
    )
    offset = np.array([[each.records] for each in releases.values()]) / len(
        reference.rows
    )
    odds = np.exp(ratios - ratios.max(axis=0)).astype(np.float32)
    weights: Features = (pooled.shares * offset).astype(np.float32) @ odds
    weights /= weights.max(axis=0)
    return np.maximum(weights, MIN_WEIGHT, out=weights)


def rows() -> Iterator[Row]:
    for clients in (100, 1000):
        embedding, releases = cohort(clients)
        setting = f"weights of {clients:,} clients on {EXAMPLES:,} examples / by hand"
        yield compare(
            "B7",
            setting,
            1.2,
            partial(ours, embedding, releases),
            partial(bare, embedding, releases),
        )
