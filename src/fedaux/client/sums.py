"""Sums over a client's features, for heads in closed form (`methods.analytic_heads`)."""

from __future__ import annotations

import numpy as np
import torch

from fedaux.data.records import Records
from fedaux.methods.analytic_heads import (
    AnalyticHead,
    FeatureMoments,
    FeatureSums,
    Statistics,
)
from fedaux.models import HeadFeatures

_BLOCK = 2048  # rows at a time in double precision


def statistics(
    hooks: AnalyticHead,
    features: HeadFeatures,
    records: Records,
    classes: int,
    sends: str,
) -> Statistics:
    """Return what a client sends of its labelled records, whose rows are h0's features:
    what the method itself makes of them, or the sums that `sends` names.
    """
    summary = hooks.summarise(features, records, classes, sends)
    if summary is not None:
        return summary
    return FeatureSums.of(sum_features(features, records, classes, sends))


def sum_features(
    features: HeadFeatures, records: Records, classes: int, sends: str
) -> FeatureMoments:
    """Sum up labelled records whose rows are h0's features; `sends` is that of
    `Method`.
    """
    labels = records.labels
    width = features.width
    class_sums = np.zeros((classes, width))
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    parts = {"moments": 1, "moments-per-class": classes}.get(sends, 0)
    moments = np.zeros((parts, width, width))
    for rows in records.blocks(_BLOCK):
        with torch.inference_mode():
            psi = features(records.batch(rows)).double().numpy()
        # `FeatureSums` refuses what is not finite
        with np.errstate(over="ignore", invalid="ignore"):
            class_sums += np.eye(classes)[labels[rows]].T @ psi
            for part in range(parts):
                members = psi if parts == 1 else psi[labels[rows] == part]
                moments[part] += members.T @ members
    return FeatureMoments(
        class_sums,
        counts,
        moments.sum(axis=0) if parts else None,
        moments if parts > 1 else None,
    )
