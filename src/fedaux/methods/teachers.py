"""T2: what teachers say of public examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedaux.config.distillation import DistillConfig
from fedaux.config.methods import Method
from fedaux.core.messages import Arrays
from fedaux.data.records import Records
from fedaux.methods.contribution import ModelSum
from fedaux.methods.hooks import Vector, without_extra
from fedaux.models import load_state
from fedaux.models.inference import predict

_UNIT, _LEAST = 2.0**-10, 2.0**-30  # of a logit variance, and the smallest weight


def teacher_logits(model: nn.Module, weights: Arrays, records: Records, workers: int = 1) -> NDArray[np.float32]:
    """Logits (N, C) of one teacher, in eval mode. A function of a model and records alone: it can run anywhere."""
    load_state(model, weights)
    return predict(model, records, workers)


def own_weights(method: Method, logits: NDArray[np.floating]) -> NDArray[np.float64] | None:
    """A teacher's weights (N,) where its logits alone decide them; None: all teachers count alike."""
    return variance_weights(logits) if method.weights == "variance" else None


def variance_weights(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Fed-ET (Cho et al. 2022): a teacher counts on an example by the variance of its logits over the classes.

    (N, C) → (N,), in (0, 1]: in steps of 2⁻¹⁰, as a common factor is free, and never more than 1.
    """
    return np.asarray(np.clip(np.var(logits, axis=1, dtype=np.float64) * _UNIT, _LEAST, 1.0))


def bayesian_teachers(
    models: ModelSum, sent: Arrays, sizes: Sequence[int], settings: DistillConfig, rng: np.random.Generator
) -> Iterator[Arrays]:
    """FedBE: the clients' average, and draws from the Gaussian over their weights, or over their normalised updates."""
    average, extra = without_extra(models.average())
    yield average
    if settings.draws == "models":
        draws = models.gaussian_draws(settings.samples, rng, settings.draw_scale)
        yield from (without_extra(drawn)[0] for drawn in draws)
        return
    for _ in range(settings.samples):
        yield {**average, "parameters": draw_update(sent["parameters"], extra, sizes, settings.draw_scale, rng)}


def normalised(sent: Vector, received: Vector, sizes: Sequence[int]) -> Arrays:
    """A client's part in the Gaussian over updates: u = Δ/‖Δ‖ of each of the network's arrays, u², and all ‖Δ‖."""
    parts = np.split(np.asarray(received, np.float64) - sent, np.cumsum(sizes)[:-1])
    norms = np.array([np.linalg.norm(part) for part in parts])
    u = np.concatenate([part / norm if norm else part for part, norm in zip(parts, norms, strict=True)])
    return {"u": u.astype(np.float32), "u2": np.square(u).astype(np.float32), "norms": norms.astype(np.float32)}


def draw_update(
    sent: Vector, means: Arrays, sizes: Sequence[int], scale: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """θ_t + ‖Δ‖ (ū + scale · σ_u · ξ), where ū, σ_u and ‖Δ‖ are over the clients, and ξ is standard normal."""
    u = means["u"].astype(np.float64)
    spread = np.sqrt(np.maximum(means["u2"] - u**2, 0.0))
    drawn = u + scale * spread * rng.standard_normal(u.shape)
    return np.asarray(sent + np.repeat(means["norms"], sizes) * drawn, dtype=np.float32)
