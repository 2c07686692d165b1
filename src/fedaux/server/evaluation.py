"""What a model gets right on labelled records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import softmax
from torch import nn

from fedaux.core.messages import Arrays
from fedaux.core.metrics import Evaluation
from fedaux.data.records import Records
from fedaux.models.inference import predict_batches
from fedaux.server.networks import Learners

MAX_SCORES = 2_000_000  # probabilities that are held for the area under the curve


def evaluate_classes(model: nn.Module, records: Records, classes: int) -> Evaluation:
    """On all labelled records. Where there are too many probabilities to hold, the area under the curve is left out."""
    labels, counts, scores = records.labels, np.zeros(classes * classes, np.int64), []
    held = len(labels) * classes <= MAX_SCORES
    for rows, logits in predict_batches(model, records):
        counts += np.bincount(labels[rows] * classes + logits.argmax(axis=1), minlength=classes * classes)
        scores += [softmax(logits, axis=1)] if held else []
    table = counts.reshape(classes, classes)
    return Evaluation(table, Evaluation.of(np.concatenate(scores), labels).auc if scores else None)


def evaluations(
    learners: Learners, weights: dict[str, Arrays], inputs: Callable[[str], Records | None], classes: int
) -> dict[str, Evaluation]:
    """Of each prototype on its test records, where there are any. Nothing is ever chosen by it."""
    tests = {label: inputs(label) for label in weights}
    return {
        label: evaluate_classes(learners.loaded(label, weights[label]), records, classes)
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
