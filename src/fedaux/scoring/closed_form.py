"""A linear head in closed form from the releases: linear discriminant analysis of pooled class means.

It is post-processing, so it costs no further privacy, and it works for clients with one class as for clients with all.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedaux.core.messages import Arrays
from fedaux.models import HeadFeatures, Prototype
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
    """Load a head on h0's own features into a prototype, whatever it makes of them; its extractor stays as it is."""
    head = torch.from_numpy(weights).to(model.head.weight.device), torch.from_numpy(bias).to(model.head.bias.device)
    if isinstance(model.features, HeadFeatures):
        head = model.features.unfold(*head)
    with torch.no_grad():
        model.head.weight.copy_(head[0])
        model.head.bias.copy_(head[1])
