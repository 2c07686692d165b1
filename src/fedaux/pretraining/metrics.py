"""Label-free quality of features (Wang & Isola 2020; Roy & Vetterli 2007)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class FeatureQuality:
    """alignment: mean squared distance of two views of an image on the unit sphere; 0 is perfect.
    uniformity: log of the mean Gaussian potential between images; lower is more uniform.
    rank: effective rank of the features.
    """

    alignment: float
    uniformity: float
    rank: float


def feature_quality(first: Tensor, second: Tensor) -> FeatureQuality:
    """From the features of two views of the same images, (B, H) each."""
    u, v = F.normalize(first, dim=1), F.normalize(second, dim=1)
    alignment = (u - v).square().sum(dim=1).mean()
    uniformity = torch.pdist(u).square().mul(-2).exp().mean().log()
    singular_values = torch.linalg.svdvals(first - first.mean(dim=0))
    p = singular_values / singular_values.sum().clamp_min(1e-12)
    rank = torch.exp(-(p * p.clamp_min(1e-12).log()).sum())
    return FeatureQuality(float(alignment), float(uniformity), float(rank))
