"""From a noisy mean of φ over a client's data to log D_i(x)/D⁻(x): post-processing, so it costs no further privacy.

SciPy's slow subpackages are imported where they are used: a real client starts a new process for every message.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from fedaux.core.messages import Arrays
from fedaux.scoring.base import LogOdds, Moments, Reference, Vector

BETWEEN_GROUPS = 0.5  # β, the share of public variance that is taken to lie between clients, or between classes
RIDGE_FACTOR = 3.0  # on Wiener's ridge: far from w = 0 the linear argument shrinks too little (docs/scoring.md)


def predictive(mean: Vector, reference: Reference | Moments, sigma: float, records: float) -> Any:
    """The density of new rows from a group whose mean is known only through a noisy release: a frozen Gaussian.

    Random effects: public rows vary by S, of which B = βS lies between groups and W = S − B within one. So the true
    mean is m ~ N(μ, B), its rows are N(m, W), and the release is N(m, V) with V = σ²·1 + W/records. Given the release,
    m has mean μ + K(m̃ − μ) and covariance K V with K = B (B + V)⁻¹, and a new row has covariance W + K V. Noise that
    hides the signal gives K → 0: one density for every group.
    """
    centre, total = reference.mean, reference.covariance
    between, within = BETWEEN_GROUPS * total, (1 - BETWEEN_GROUPS) * total
    noise = sigma**2 * np.eye(len(total)) + within / records
    gain = np.linalg.solve(between + noise, between).T
    return _gaussian(centre + gain @ (mean - centre), within + gain @ noise)


def public_density(reference: Reference | Moments) -> Any:
    return _gaussian(reference.mean, reference.covariance)


def _gaussian(mean: Vector, covariance: Vector) -> Any:
    from scipy.stats import multivariate_normal

    return multivariate_normal(mean, covariance, allow_singular=True)


def bayes_fit(mean: Vector, reference: Reference, sigma: float, records: int) -> Arrays:
    return {"mean": mean, "noise": np.array([sigma, records, np.log(records / len(reference.rows))])}


def bayes_ratio(own: Arrays, moments: Moments) -> LogOdds:
    """The predictive density of the client's rows over the density of D⁻."""
    sigma, records, offset = own["noise"]
    client, public = predictive(own["mean"], moments, sigma, records), public_density(moments)
    return lambda embedded: np.atleast_1d(client.logpdf(embedded) - public.logpdf(embedded) + offset)


def kliep_fit(mean: Vector, reference: Reference, sigma: float, records: int) -> Arrays:
    """An exponential family fitted to the mean, with a ridge set by the known noise."""
    weights, log_z = kliep(mean, reference, noise_ridge(mean, reference, sigma, records))
    return {"weights": weights, "offset": np.array([np.log(records / len(reference.rows)) - log_z])}


def kliep_ratio(own: Arrays, moments: Moments) -> LogOdds:
    return lambda embedded: np.asarray(embedded @ own["weights"] + own["offset"], np.float64)


RATIOS = {"bayes": (bayes_fit, bayes_ratio), "kliep": (kliep_fit, kliep_ratio)}
"""By name: (mean, reference, sigma, records) → a client's own arrays, (own arrays, moments of D⁻) → its log-odds."""


def kliep(mean: Vector, reference: Reference, ridge: float) -> tuple[Vector, float]:
    """argmax_w ⟨w, m⟩ − log mean_{D⁻} e^{⟨w, φ⟩} − ridge/2 ‖w‖², and its log Z: D_i/D⁻ is then e^{⟨w, φ⟩}/Z."""
    from scipy.optimize import minimize

    rows = reference.rows

    def negative(w: Vector) -> tuple[float, Vector]:
        scores = rows @ w
        value = logsumexp(scores) - np.log(len(rows)) - w @ mean + 0.5 * ridge * w @ w
        return float(value), softmax(scores) @ rows - mean + ridge * w

    options = {"gtol": 1e-8, "ftol": 1e-14}
    solution = minimize(negative, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    return solution, float(logsumexp(rows @ solution) - np.log(len(rows)))


def noise_ridge(mean: Vector, reference: Reference, sigma: float, records: int) -> float:
    """The ridge that shrinks as Wiener would: v/(v + noise), with v the signal after subtracting the known noise.

    Near w = 0 the ratio is linear, w = (S + λ)⁻¹ d with d = m − mean φ(D⁻) and S the covariance on D⁻. With S ≈ s·1,
    a signal of variance v per coordinate and noise σ² + s/|D_i|, the best factor s/(s + λ) is v/(v + noise). A signal
    hidden by noise gives λ → ∞, w → 0 and hence equal weights. Only the release and public data enter.
    """
    spread = float(np.diag(reference.covariance).mean())
    noise = sigma**2 + spread / records
    signal = float(np.square(mean - reference.mean).mean()) - noise
    signal = min(max(signal, 1e-6 * noise), spread / 2)  # clients do not differ more than public rows do
    return RIDGE_FACTOR * spread * noise / signal
