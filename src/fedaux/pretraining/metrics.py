"""Quality of features: without labels (Wang & Isola 2020; Roy & Vetterli 2007), and by linear evaluation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedaux.data.records import Records

C = 1.0  # inverse regularisation strength of the probe, on standardised features


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


def linear_probe(train: Records, test: Records) -> float:
    """Test accuracy of a logistic regression on the flattened and standardised rows of `train`.

    It uses labels, so it is for reports only, never for model selection.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    x, x_test = (records.tensor().numpy().reshape(len(records), -1) for records in (train, test))
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale[scale < 1e-6] = 1.0
    for rows in (x, x_test):
        rows -= mean
        rows /= scale
    with warnings.catch_warnings():  # accurate enough for a report
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=C, max_iter=200).fit(x, train.labels)
    return float(np.mean(model.predict(x_test) == test.labels))
