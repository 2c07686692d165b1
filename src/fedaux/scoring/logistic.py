"""The paper's scorer, corrected: logistic regression of D_i against D⁻ with output
perturbation (eq. 5-7, Alg. 1).

Corrections: l(z) = log(1 + e^{−z}); radius and centre from D⁻ alone and every row
clipped to them; labels by index; the gradient at the returned point certified; N =
|D_i| + |D⁻|; nothing but the noisy w is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedaux.core.arrays import Arrays, Vector
from fedaux.messages import Release
from fedaux.privacy.mechanism import UNIT_SENSITIVITY, Bound, clip_rows
from fedaux.scoring.base import (
    Features,
    Fit,
    Fitted,
    LogOdds,
    PortableScorer,
    Reference,
    check_shapes,
)

# ‖∇J‖ at the returned point, as a share of the gradient's sensitivity
GRADIENT_TOLERANCE = 1e-3
STEP = 2.0**-40  # much finer than any useful noise, coarse enough for 64-bit integers


@dataclass(frozen=True)
class LogisticScorer(PortableScorer):
    ridge: float = 0.01
    name: str = "logistic"

    def __post_init__(self) -> None:
        if not 1e-6 <= self.ridge < np.inf:
            raise ValueError(
                f"the ridge must be at least 1e-6, not {self.ridge}: the proof divides "
                "by it"
            )

    def size(self, public: Arrays) -> int:
        return len(public["mean"])

    def publish(self, negatives: Features) -> Arrays:
        mean = negatives.mean(axis=0, dtype=np.float64)
        radius = np.linalg.norm(negatives - mean, axis=1).max(keepdims=True)
        public = {"mean": mean.astype(np.float32), "radius": radius.astype(np.float32)}
        return {**public, "negatives": self.embed(public, negatives).astype(np.float32)}

    def embed(self, public: Arrays, features: Features) -> Vector:
        check_shapes(public, mean=(features.shape[1],), radius=(1,))
        return clip_rows(
            (np.asarray(features, np.float64) - public["mean"])
            / max(float(public["radius"][0]), 1e-12)
        )

    def bound(self, public: Arrays, adjacency: str, size: int) -> Bound:
        """λ/2 ‖w‖² ≤ J(w) ≤ J(0) = log 2 at the minimiser, and the point returned is
        within τ/λ of it.

        Rounding to the grid moves w, and two neighbours apart, by at most √H steps
        more.
        """
        total, rounding = size + len(public["negatives"]), np.sqrt(self.size(public))
        tau = GRADIENT_TOLERANCE * gradient_sensitivity(total, "add-remove")
        norm = np.sqrt(2 * np.log(2.0) / self.ridge) + tau / self.ridge
        delta = sensitivity(total, self.ridge, adjacency)
        return Bound(
            float(norm / STEP + rounding), STEP, float(delta / STEP + rounding)
        )

    def fit_arrays(
        self, public: Arrays, reference: Reference, releases: Sequence[Release]
    ) -> Fit:
        return {}, {
            r.client: {"weights": r.arrays["values"] * r.step} for r in releases
        }

    def from_arrays(self, shared: Arrays, own: Mapping[str, Arrays]) -> Fitted:
        def log_odds(w: Vector) -> LogOdds:
            return lambda embedded: embedded @ w

        return Fitted(
            {client: log_odds(arrays["weights"]) for client, arrays in own.items()}
        )


def gradient_sensitivity(total: int, adjacency: str) -> float:
    """Sensitivity of ∇J at any w: ‖Σ s l' h‖ ≤ Σ s ≤ 1 for one unit, and as much for
    the one it replaces.
    """
    return UNIT_SENSITIVITY[adjacency] / total


def sensitivity(total: int, ridge: float, adjacency: str) -> float:
    """Δ = (Δ_grad + 2τ)/λ: strong convexity, with both points within τ of
    stationary.
    """
    return gradient_sensitivity(total, adjacency) * (1 + 2 * GRADIENT_TOLERANCE) / ridge
