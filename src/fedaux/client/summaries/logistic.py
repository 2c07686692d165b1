"""The logistic regression of D_i against D⁻ that the paper's scorer releases (eq. 5-7).

What the server makes of it, and its sensitivity, is in `scoring.logistic`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from fedaux.core.arrays import Arrays, Vector
from fedaux.privacy.mechanism import Summary, clip_rows
from fedaux.scoring.base import Features, Shares
from fedaux.scoring.logistic import (
    GRADIENT_TOLERANCE,
    STEP,
    LogisticScorer,
    gradient_sensitivity,
)


def separation(
    scorer: LogisticScorer,
    public: Arrays,
    features: Features,
    adjacency: str,
    size: int,
    shares: Shares,
) -> Summary:
    """Return what separates the client's records from D⁻: the minimiser of J, in
    steps.
    """
    own = scorer.embed(public, features)
    negatives = clip_rows(public["negatives"])
    w = solve(own, shares, negatives, scorer.ridge, size + len(negatives))
    values = np.rint(w / STEP).astype(np.int64)
    bound = scorer.bound(public, adjacency, size)
    return Summary(values, bound.step, bound.sensitivity, adjacency, size)


def objective(
    w: Vector, own: Vector, shares: Shares, negatives: Vector, ridge: float, total: int
) -> tuple[float, Vector]:
    """J(w) = 1/N Σ s log(1 + e^{−t⟨w, h⟩}) + λ/2 ‖w‖² and its gradient; t = +1 on rows
    of D_i, −1 on rows of D⁻.

    A row of D_i counts for its share s of its unit, a row of D⁻ for 1. N = `total` =
    |D_i| + |D⁻| is public. The sums are in floating point. What they return is
    certified, with room for their rounding, and not cancelled bit by bit.
    """
    up = own @ w
    down = negatives @ w
    losses = shares @ np.logaddexp(0.0, -up) + np.logaddexp(0.0, down).sum()
    slopes = expit(down) @ negatives - (shares * expit(-up)) @ own
    value = losses / total + 0.5 * ridge * w @ w
    gradient = slopes / total + ridge * w
    return float(value), gradient


def solve(
    own: Vector, shares: Shares, negatives: Vector, ridge: float, total: int
) -> Vector:
    """The minimiser of J, or an error: output perturbation protects the minimiser and
    nothing else.
    """
    from scipy.optimize import minimize

    size = own.shape[1]
    problem = (own, shares, negatives, ridge, total)
    # the stricter adjacency sets τ; a tenth of it leaves room between the solver's
    # ∞-norm and the certificate's ℓ₂
    tau = GRADIENT_TOLERANCE * gradient_sensitivity(total, "add-remove")
    options = {
        "gtol": 0.1 * tau / np.sqrt(size),
        "ftol": 0.0,
        "maxcor": 20,
        "maxiter": 10_000,
    }
    start = np.zeros(size)
    minimum = minimize(
        objective, start, problem, jac=True, method="L-BFGS-B", options=options
    )
    w = np.asarray(minimum.x)
    for _ in range(5):
        gradient = objective(w, *problem)[1]
        norm = float(np.linalg.norm(gradient))
        if norm <= tau:
            return w
        # Newton steps where the line search stalls
        w = w - np.linalg.solve(_hessian(w, *problem), gradient)
    raise RuntimeError(
        f"the scoring problem was not solved: ‖∇J‖ = {norm:.1e} > {tau:.1e}. Nothing "
        "is released."
    )


def _hessian(
    w: Vector, own: Vector, shares: Shares, negatives: Vector, ridge: float, total: int
) -> Vector:
    rows = np.concatenate([own, negatives])
    counts = np.concatenate([shares, np.ones(len(negatives))])
    slope = expit(rows @ w)
    curve = (counts * slope * (1 - slope))[:, None] * rows
    return np.asarray(rows.T @ curve / total + ridge * np.eye(len(w)))
