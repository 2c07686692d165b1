"""A linear head in closed form from the releases: linear discriminant analysis of pooled class means.

It is post-processing, so it costs no further privacy, and it works for clients with one class as for clients with all.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedaux.core.messages import Arrays
from fedaux.models import Prototype
from fedaux.scoring.base import Reference
from fedaux.scoring.class_sums import Pooled


def discriminant_head(
    public: Arrays, reference: Reference, pooled: Pooled
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(weights (C, H), biases (C,)) of a head on h0's own features.

    `Pooled.discriminant`, with φ taken to be linear in the features: it is a direction, and the public map has norm 1
    in the median.
    """
    on_phi, bias = pooled.discriminant(reference)
    weights = on_phi @ public["basis"].T.astype(np.float64)
    bias = bias - weights @ public["mean"].astype(np.float64)
    return weights.astype(np.float32), bias.astype(np.float32)


def set_head(model: Prototype, weights: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
    """Load the head into a prototype, whose extractor stays as it is."""
    with torch.no_grad():
        model.head.weight.copy_(torch.from_numpy(weights))
        model.head.bias.copy_(torch.from_numpy(bias))
