"""T1: what a client does with the model it receives, and the two passes that only look: predict and evaluate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from fedaux.data.records import Records
from fedaux.train.losses import proximal_term

LOOK = 512  # rows at a time where nothing is learned


def batches(size: int, batch: int, generator: torch.Generator) -> Iterator[NDArray[np.int64]]:
    """All positions once, shuffled. A last batch of one row joins the one before it: BatchNorm cannot train on it."""
    order = torch.randperm(size, generator=generator).numpy()
    cuts = list(range(batch, size, batch))
    if batch > 1 and cuts and size - cuts[-1] == 1:
        cuts.pop()
    yield from np.split(order, cuts)


def train_local(
    model: nn.Module, records: Records, *, epochs: int, lr: float, batch: int, mu: float, generator: torch.Generator
) -> float:
    """E epochs of Adam on cross-entropy, plus FedPROX's term where μ > 0. Returns the mean loss of the last epoch."""
    model.train()
    labels = torch.from_numpy(np.ascontiguousarray(records.labels))
    parameters = list(model.parameters())
    anchor = [p.detach().clone() for p in parameters] if mu > 0 else []
    optimiser = torch.optim.Adam(parameters, lr=lr)
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for rows in batches(len(records), batch, generator):
            loss = F.cross_entropy(model(records.batch(rows)), labels[rows])
            total += loss.item() * len(rows)
            if mu > 0:
                loss = loss + proximal_term(parameters, anchor, mu)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    optimiser.zero_grad(set_to_none=True)  # the resident model must not keep a second model's worth of gradients
    return total / len(records)


def look(module: nn.Module, records: Records, block: int = LOOK) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """The module's output in eval mode, block by block: logits of a model, features of an extractor."""
    module.eval()
    for rows in records.blocks(block):
        with torch.inference_mode():
            output: NDArray[np.float32] = module(records.batch(rows)).float().numpy()
        yield rows, output


def confusion(model: nn.Module, records: Records, classes: int) -> NDArray[np.int64]:
    """How many labelled records of each class (rows) are taken for which (columns)."""
    labels, counts = records.labels, np.zeros(classes * classes, np.int64)
    for rows, logits in look(model, records):
        counts += np.bincount(labels[rows] * classes + logits.argmax(axis=1), minlength=classes * classes)
    return counts.reshape(classes, classes)


def evaluate(model: nn.Module, records: Records) -> tuple[int, float]:
    """(number of correct predictions, summed cross-entropy) on labelled records."""
    labels, correct, loss = records.labels, 0, 0.0
    for rows, logits in look(model, records):
        wanted = labels[rows]
        correct += int((logits.argmax(axis=1) == wanted).sum())
        loss += F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(wanted), reduction="sum").item()
    return correct, loss
