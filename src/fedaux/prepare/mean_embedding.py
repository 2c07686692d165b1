"""The scorer we lead with: a private mean of public features, then a density ratio that costs no further privacy.

On public data: centre, PCA, half-whitening and one scale, all from features of D⁻. Each record's φ has norm at most 1,
so exchanging one record moves the sum of φ by at most 2, whatever the record is; that is the whole proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from fedaux.exchange import Arrays, Release
from fedaux.prepare.scoring import Features, Line, clip_rows
from fedaux.privacy.release import GRID, Summary

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class MeanEmbeddingScorer:
    dims: int = 32
    name: str = "mean-embedding"

    def publish(self, negatives: Features) -> Arrays:
        mean, basis = public_map(negatives, self.dims)
        return {"mean": mean.astype(np.float32), "basis": basis.astype(np.float32)}

    def embed(self, public: Arrays, features: Features) -> Vector:
        return clip_rows((np.asarray(features, np.float64) - public["mean"]) @ public["basis"].astype(np.float64))

    def summarise(self, public: Arrays, features: Features, adjacency: str, size: int) -> Summary:
        return mean_embedding(self.embed(public, features), adjacency, size)

    def fit(self, public: Arrays, reference: Features, release: Release) -> Line:
        mean = release.arrays["values"] * release.step
        ridge = noise_ridge(mean, reference, release.scale * release.step, release.records)
        weights, log_z = kliep(mean, reference, ridge)
        return weights, float(np.log(release.records / len(reference)) - log_z)


def public_map(negatives: Features, dims: int) -> tuple[Vector, Vector]:
    """(μ, B) such that (h − μ) B is the half-whitened PCA of h, scaled so that nine rows of D⁻ in ten keep norm ≤ 1.

    Half-whitening divides a direction of variance v by v^¼: it lifts the faint directions, in which classes differ,
    without giving the noise of the faintest the same voice.
    """
    rows = np.asarray(negatives, dtype=np.float64)
    mean = rows.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(rows - mean, rowvar=False, bias=True).reshape(len(mean), -1))
    keep = np.argsort(variances)[::-1][: min(dims, len(rows) - 1)]
    keep = keep[variances[keep] > 1e-9 * variances.max(initial=1e-30)]
    if keep.size == 0:
        raise ValueError(
            "all features of the negatives are equal: there is nothing to score with; check the auxiliary data"
        )
    basis = directions[:, keep] * variances[keep] ** -0.25
    norms = np.linalg.norm((rows - mean) @ basis, axis=1)
    return mean, basis / np.quantile(norms, 0.9)


def mean_embedding(embedded: Vector, adjacency: str, size: int) -> Summary:
    """Σ φ(x) over D_i in exact integers. Rounding is towards zero, so no row leaves the unit ball."""
    units = np.trunc(embedded * (GRID - 1)).astype(np.int64)  # GRID − 1: room for the last bit of the clipping division
    if (np.square(units).sum(axis=1) > GRID**2).any():
        raise AssertionError("a clipped row left the unit ball; no release is made")
    return Summary(
        values=units.sum(axis=0),
        step=1.0 / (GRID * size),
        sensitivity=float(GRID * (2 if adjacency == "replace-one" else 1)),
        adjacency=adjacency,
        records=size,
    )


def kliep(mean: Vector, reference: Features, ridge: float) -> tuple[Vector, float]:
    """argmax_w ⟨w, m⟩ − log mean_{D⁻} e^{⟨w, φ⟩} − ridge/2 ‖w‖², and its log Z: the ratio D_i/D⁻ as e^{⟨w, φ⟩}/Z."""
    rows = np.asarray(reference, dtype=np.float64)

    def negative(w: Vector) -> tuple[float, Vector]:
        scores = rows @ w
        value = logsumexp(scores) - np.log(len(rows)) - w @ mean + 0.5 * ridge * w @ w
        return float(value), softmax(scores) @ rows - mean + ridge * w

    found = minimize(
        negative, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", options={"gtol": 1e-8, "ftol": 1e-14}
    )
    return found.x, float(logsumexp(rows @ found.x) - np.log(len(rows)))


def noise_ridge(mean: Vector, reference: Features, sigma: float, records: int) -> float:
    """The ridge that shrinks as Wiener would: v/(v + noise), with v the signal left after the known noise is taken off.

    Near w = 0 the ratio is linear, w = (S + λ)⁻¹ d with d = m − mean φ(D⁻) and S the covariance on D⁻. With S ≈ s·1,
    a signal of variance v per coordinate and noise σ² + s/|D_i|, the best factor s/(s + λ) is v/(v + noise). A signal
    that drowns gives λ → ∞, w → 0 and hence equal weights. Only the release and public data enter.
    """
    rows = np.asarray(reference, dtype=np.float64)
    spread = float(rows.var(axis=0).mean())
    noise = sigma**2 + spread / records
    signal = float(np.square(mean - rows.mean(axis=0)).mean()) - noise
    return spread * noise / max(signal, 1e-6 * noise)
