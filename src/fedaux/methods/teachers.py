"""T2: the logits of teachers on public examples, and their weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedaux.config.methods import Method
from fedaux.core.arrays import Arrays
from fedaux.data.records import Records
from fedaux.methods.contribution import ModelSum
from fedaux.methods.hooks import without_extra
from fedaux.models import load_state
from fedaux.models.inference import predict

DRAWS = 10  # of FedBE, from its Gaussian
_UNIT = 2.0**-10  # of a logit variance
_LEAST = 2.0**-30  # the smallest weight


def teacher_logits(
    model: nn.Module, weights: Arrays, records: Records
) -> NDArray[np.float32]:
    """Logits (N, C) of one teacher, in eval mode. A function of a model and records
    alone: it can run anywhere.
    """
    load_state(model, weights)
    return predict(model, records)


def logit_weights(
    method: Method, logits: NDArray[np.floating]
) -> NDArray[np.float64] | None:
    """Return a teacher's weights (N,) if its logits alone determine them. None means all
    teachers count equally.
    """
    return variance_weights(logits) if method.weights == "variance" else None


def variance_weights(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Fed-ET (Cho et al. 2022): a teacher counts on an example by the variance of its
    logits over the classes.

    (N, C) → (N,), in (0, 1]: in steps of 2⁻¹⁰, as a common factor is free, and never
    more than 1.
    """
    variances = np.var(logits, axis=1, dtype=np.float64)
    return np.asarray(np.clip(variances * _UNIT, _LEAST, 1.0))


def bayesian_teachers(models: ModelSum, rng: np.random.Generator) -> Iterator[Arrays]:
    """FedBE: the clients' average, and draws from the Gaussian over their weights."""
    yield without_extra(models.average())[0]
    yield from (without_extra(drawn)[0] for drawn in models.gaussian_draws(DRAWS, rng))
