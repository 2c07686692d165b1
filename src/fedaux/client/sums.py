"""Sums of a client's features, for heads in closed form (`methods.analytic_heads`)."""

from __future__ import annotations

import numpy as np
import torch

from fedaux.data.records import Records
from fedaux.methods.analytic_heads import FeatureMoments
from fedaux.models import HeadFeatures

_BLOCK = 2048  # rows at a time in double precision


def sum_features(
    features: HeadFeatures, records: Records, classes: int, sends: str
) -> FeatureMoments:
    """Sum up labelled records whose rows are h0's features. `sends` is that of
    `Method`.
    """
    labels = records.labels
    width = features.width
    class_sums = np.zeros((classes, width))
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    moments = np.zeros((width, width)) if sends == "moments" else None
    for rows in records.blocks(_BLOCK):
        with torch.inference_mode():
            psi = features(records.batch(rows)).double().numpy()
        # `FeatureSums` refuses what is not finite
        with np.errstate(over="ignore", invalid="ignore"):
            class_sums += np.eye(classes)[labels[rows]].T @ psi
            if moments is not None:
                moments += psi.T @ psi
    return FeatureMoments(class_sums, counts, moments)
