"""Attack our own releases: how much can be told apart, and so how large must ε at least be?

Two neighbouring summaries at their claimed distance are released many times. The best any attacker can do with Gaussian
noise is to project a release on the difference of the two; what that achieves bounds ε from below, with a confidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import beta

from fedaux.config import PrivacyConfig
from fedaux.privacy.gaussian import delta_of
from fedaux.privacy.release import Summary, release

Scores = NDArray[np.float64]
Draw = Callable[[Summary], NDArray[np.int64]]  # one release of a summary


@dataclass(frozen=True)
class Audit:
    """Lower bounds on ε at 95 % confidence: for any mechanism, and for one that is Gaussian."""

    claimed: float
    delta: float
    draws: int
    any_mechanism: float
    gaussian: float

    @property
    def violated(self) -> bool:
        """Whether more was told apart than the claim allows."""
        return max(self.any_mechanism, self.gaussian) > self.claimed


def audit(privacy: PrivacyConfig, draws: int, size: int = 2, draw: Draw | None = None) -> Audit:
    """Release two neighbours `draws` times each, as a client would, and try to tell which is which.

    They lie in the direction (1, 1, …)/√size, not along an axis, so that noise missing from some coordinates shows.
    """
    if draw is None:

        def draw(summary: Summary) -> NDArray[np.int64]:
            return np.asarray(release(summary, "audit", privacy).arrays["values"])

    reach = 2**21
    one, other = (_summary(sign * reach / (2 * np.sqrt(size)), size, reach) for sign in (-1, 1))
    low, high = (np.array([draw(summary).sum() for _ in range(draws)], np.float64) for summary in (one, other))
    return Audit(privacy.epsilon, privacy.delta, draws, *lower_bounds(low, high, privacy.delta))


def _summary(value: float, size: int, reach: float) -> Summary:
    return Summary(np.full(size, round(value), np.int64), 1.0, float(reach), "replace-one", 1)


def lower_bounds(negatives: Scores, positives: Scores, delta: float, confidence: float = 0.95) -> tuple[float, float]:
    """(for any mechanism, for a Gaussian one) from scores that are higher on `positives`.

    The threshold is chosen on one half of the draws and judged on the other, so that choosing costs no confidence. Each
    error rate gets half of what may go wrong (Clopper & Pearson 1934).
    """
    (seen0, new0), (seen1, new1) = (np.array_split(scores, 2) for scores in (negatives, positives))
    risk = (1 - confidence) / 2
    bounds = [0.0, 0.0]
    for kind, pick in enumerate((_best_ratio, _best_middle)):
        threshold = pick(seen0, seen1, delta)
        false_positive = _upper(int((new0 >= threshold).sum()), len(new0), risk)
        false_negative = _upper(int((new1 < threshold).sum()), len(new1), risk)
        bounds[kind] = (_epsilon, _gaussian_epsilon)[kind](false_positive, false_negative, delta)
    return bounds[0], bounds[1]


def _epsilon(false_positive: float, false_negative: float, delta: float) -> float:
    """(ε, δ) allows FNR ≥ 1 − δ − e^ε FPR; so ε is at least this."""
    return max(0.0, float(np.log(max(1 - delta - false_negative, 1e-300) / false_positive)))


def _gaussian_epsilon(false_positive: float, false_negative: float, delta: float) -> float:
    """Two unit Gaussians with these error rates are at least μ apart; ε(δ) of that μ, for Gaussian noise only."""
    mu = float(-ndtri(false_positive) - ndtri(false_negative))
    if mu <= 0 or delta_of(1 / mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(1 / mu, high) > delta:
        high *= 2
    return float(brentq(lambda epsilon: delta_of(1 / mu, epsilon) - delta, 0.0, high))


def _best_ratio(negatives: Scores, positives: Scores, delta: float) -> float:
    """The threshold in the tail that promises the largest ε on these draws."""
    tail = np.quantile(negatives, 1 - np.geomspace(1e-3, 0.5, 60))
    candidates = np.append(tail, np.quantile(positives, [0.0, 0.01, 0.5]))
    rates = [((negatives >= t).mean(), (positives < t).mean()) for t in candidates]
    risk = 0.025
    promised = [_epsilon(_upper(round(fp * len(negatives)), len(negatives), risk), fn, delta) for fp, fn in rates]
    return float(candidates[int(np.argmax(promised))])


def _best_middle(negatives: Scores, positives: Scores, delta: float) -> float:
    """Half-way: both error rates are then known best."""
    return float((np.median(negatives) + np.median(positives)) / 2)


def _upper(count: int, draws: int, risk: float) -> float:
    return 1.0 if count >= draws else float(beta.ppf(1 - risk, count + 1, draws - count))
