"""How good features are, without a single label (Wang & Isola 2020; Roy & Vetterli 2007)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class FeatureQuality:
    """alignment: mean squared distance of two views of an image on the unit sphere; 0 is perfect.
    uniformity: log of the mean Gaussian potential between images; the lower, the better spread.
    rank: effective number of directions the features use.
    """

    alignment: float
    uniformity: float
    rank: float


def feature_quality(first: Tensor, second: Tensor) -> FeatureQuality:
    """From features of two views of the same images, (B, H) each."""
    one, two = F.normalize(first, dim=1), F.normalize(second, dim=1)
    alignment = (one - two).square().sum(dim=1).mean()
    uniformity = torch.pdist(one).square().mul(-2).exp().mean().log()
    spread = torch.linalg.svdvals(first - first.mean(dim=0))
    share = spread / spread.sum().clamp_min(1e-12)
    rank = torch.exp(-(share * share.clamp_min(1e-12).log()).sum())
    return FeatureQuality(float(alignment), float(uniformity), float(rank))
