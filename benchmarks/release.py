"""B6: a client's whole release from its features, beside one epoch of its head on the
same features, by hand.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.measure import Row, compare
from fedaux.client.summaries import summarise
from fedaux.config.sections import PrivacyConfig
from fedaux.privacy.mechanism import release
from fedaux.scoring.registry import make_scorer

RECORDS = 2500
WIDTH = 512
NEGATIVES = 4800
CLASSES = 10
BATCH = 32


def epoch(features: torch.Tensor, labels: torch.Tensor) -> None:
    head = torch.nn.Linear(WIDTH, CLASSES)
    optimiser = torch.optim.Adam(head.parameters(), lr=1e-3)
    for rows in torch.randperm(RECORDS).split(BATCH):
        optimiser.zero_grad()
        F.cross_entropy(head(features[rows]), labels[rows]).backward()
        optimiser.step()


def rows() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    negatives = np.maximum(
        rng.normal(size=(NEGATIVES, WIDTH)) @ rng.normal(size=(WIDTH, WIDTH)), 0
    ).astype(np.float32)
    own = negatives[rng.integers(NEGATIVES, size=RECORDS)] * rng.uniform(
        0.5, 1.5, size=(RECORDS, 1)
    ).astype(np.float32)
    labels = rng.integers(CLASSES, size=RECORDS)
    shares = np.ones(RECORDS)
    tensors = torch.from_numpy(own), torch.from_numpy(labels)
    privacy = PrivacyConfig(epsilon=0.1)
    scorer = make_scorer(privacy, CLASSES)
    public = scorer.publish(negatives)

    def ours() -> object:
        summary = summarise(scorer, public, own, labels, "replace-one", RECORDS, shares)
        return release(summary, "client", privacy)

    setting = (
        f"release of {RECORDS:,} records of {WIDTH} features, class-embedding / an "
        "epoch of the head"
    )
    yield compare("B6", setting, 0.2, ours, lambda: epoch(*tensors))
