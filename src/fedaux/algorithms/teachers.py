"""T2: what teachers say of public examples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedaux.algorithms.aggregate import ModelSum
from fedaux.core.messages import Arrays
from fedaux.data.records import Records
from fedaux.models import load_state
from fedaux.models.inference import predict


def teacher_logits(model: nn.Module, weights: Arrays, records: Records, workers: int = 1) -> NDArray[np.float32]:
    """Logits (N, C) of one teacher, in eval mode. A function of a model and records alone: it can run anywhere."""
    load_state(model, weights)
    return predict(model, records, workers)


def bayesian_teachers(models: ModelSum, samples: int, rng: np.random.Generator) -> Iterator[Arrays]:
    """FedBE: the clients' average, and draws from the Gaussian over their weights."""
    yield models.average()
    yield from models.gaussian_draws(samples, rng)
