"""What a model gets right on labelled records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from fedaux.algorithms.learners import Learners
from fedaux.core.messages import Arrays
from fedaux.data.records import Records
from fedaux.models.inference import predict_batches


def confusion(model: nn.Module, records: Records, classes: int) -> NDArray[np.int64]:
    """How many labelled records of each class (rows) are taken for which (columns)."""
    labels, counts = records.labels, np.zeros(classes * classes, np.int64)
    for rows, logits in predict_batches(model, records):
        counts += np.bincount(labels[rows] * classes + logits.argmax(axis=1), minlength=classes * classes)
    return counts.reshape(classes, classes)


def confusions(
    learners: Learners, weights: dict[str, Arrays], inputs: Callable[[str], Records | None], classes: int
) -> dict[str, NDArray[np.int64]]:
    """Of each prototype on its test records, where there are any. Nothing is ever chosen by it."""
    tests = {label: inputs(label) for label in weights}
    return {
        label: confusion(learners.loaded(label, weights[label]), records, classes)
        for label, records in tests.items()
        if records is not None
    }


def evaluate(model: nn.Module, records: Records) -> tuple[int, float]:
    """(number of correct predictions, summed cross-entropy) on labelled records."""
    labels, correct, loss = records.labels, 0, 0.0
    for rows, logits in predict_batches(model, records):
        wanted = labels[rows]
        correct += int((logits.argmax(axis=1) == wanted).sum())
        loss += F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(wanted), reduction="sum").item()
    return correct, loss
