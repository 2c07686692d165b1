"""Accuracy, loss and confusion, counted naively."""

import numpy as np
import pytest
import torch

from fedaux.algorithms.evaluation import confusion, evaluate
from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import Prototype, build


def blobs(size: int = 60) -> Records:
    rng = np.random.default_rng(0)
    y = np.arange(size) % 3
    return Records((rng.normal(size=(size, 4)) + 2 * np.eye(4)[y]).astype(np.float32), y.astype(np.int64))


def model(norm: str = "batch") -> Prototype:
    return build(PrototypeSpec.of("mlp", hidden=16, features=8, norm=norm), (4,), 3, seed=0)


def test_evaluate_counts_and_sums() -> None:
    network, records = model(), blobs(20)
    network.eval()
    with torch.no_grad():
        logits = network(records.tensor()).numpy().astype(np.float64)
    naive = -sum(np.log(np.exp(row)[y] / np.exp(row).sum()) for row, y in zip(logits, records.labels, strict=True))
    correct, loss = evaluate(network, records)
    assert correct == sum(int(np.argmax(row)) == y for row, y in zip(logits, records.labels, strict=True))
    assert loss == pytest.approx(naive, rel=1e-5)


def test_confusion_counts_true_by_predicted() -> None:
    class Told(torch.nn.Module):
        """Says what the first column says."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(x[:, 0].long(), 4).float()

    rng = np.random.default_rng(0)
    said, true = rng.integers(0, 4, (2, 1300))
    found = confusion(Told(), Records(said[:, None].astype(np.float32), true), 4)
    naive = np.zeros((4, 4), int)
    for row, column in zip(true, said, strict=True):
        naive[row, column] += 1
    assert (found == naive).all()
