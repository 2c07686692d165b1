"""The settings of attacks on the package, and lower confidence bounds on ε from an
attacker's success.

A bound comes either from many draws on two neighbouring data sets, by the error rates
of telling them apart; or from a single run with many canaries included at random, by
how many of them the attacker guesses right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta, binom

from fedaux.audit.result import AttackResult
from fedaux.privacy.mechanism import bracket, delta_of, epsilon_of

Vector = NDArray[np.float64]
# for each attack that draws: all of them together then hold with 95 %
FAILURE_PROBABILITY = 0.05 / 20


@dataclass(frozen=True)
class AuditConfig:
    """The budget that is claimed, and how many replies are drawn from each of two
    neighbours.
    """

    epsilon: float = 4.0  # below 1, noise hides nearly everything from an audit
    delta: float = 1e-5
    draws: int = 200

    def fewer_draws(self) -> AuditConfig:
        """Return settings with fewer draws, for attacks that move a release by many
        times its sensitivity.
        """
        return replace(self, draws=max(60, self.draws // 5))

    def more_draws(self) -> AuditConfig:
        """Return settings with more draws, for missing noise, which is hard to
        detect.
        """
        return replace(self, draws=2 * self.draws)


@dataclass(frozen=True)
class DrawnResult(AttackResult):
    """What was measured on so many draws of each neighbour."""

    draws: int = 0


Draw = Callable[[], Vector]  # one reply, drawn anew
Attack = Callable[[Path, AuditConfig], AttackResult]  # (an empty folder, settings)


def distinguish(
    neighbours: Sequence[Draw],
    audit: AuditConfig,
    detail: str = "",
    direction: Vector | None = None,
) -> AttackResult:
    """The attack of telling two neighbours apart by their replies, under the claim
    `audit.epsilon`.

    It proves the better of both lower bounds on ε, which agree for Gaussian noise. An
    attacker who knows in which `direction` the second neighbour differs from the first
    need not learn it from the draws.
    """
    first, second = (
        np.stack([draw() for _ in range(audit.draws)]) for draw in neighbours
    )
    scores = (
        linear_scores(first, second)
        if direction is None
        else (first @ direction, second @ direction)
    )
    bound = max(lower_bounds(*scores, audit.delta, 1 - FAILURE_PROBABILITY))
    return DrawnResult(audit.epsilon, bound, detail, draws=audit.draws)


def lower_bounds(
    negatives: Vector, positives: Vector, delta: float, confidence: float = 0.95
) -> tuple[float, float]:
    """(for any mechanism, for a Gaussian one) from scores that are higher on
    `positives`.

    The threshold is chosen on one half of the draws and evaluated on the other, so that
    the choice costs no confidence. Each error rate gets half of the failure probability
    (Clopper & Pearson 1934).
    """
    (train0, test0), (train1, test1) = (
        np.array_split(scores, 2) for scores in (negatives, positives)
    )
    risk = (1 - confidence) / 2

    def bound(
        threshold: float, epsilon: Callable[[float, float, float], float]
    ) -> float:
        false_positive = _upper(int((test0 >= threshold).sum()), len(test0), risk)
        false_negative = _upper(int((test1 < threshold).sum()), len(test1), risk)
        return epsilon(false_positive, false_negative, delta)

    # where both error rates are estimated best
    midpoint = float(np.median(train0) + np.median(train1)) / 2
    return bound(_best_tail(train0, train1, delta), _epsilon), bound(
        midpoint, _gaussian_epsilon
    )


def linear_scores(negatives: Vector, positives: Vector) -> tuple[Vector, Vector]:
    """Rows of draws as scores for `lower_bounds`: the diagonal linear discriminant of
    their first halves.

    With Gaussian noise that is the best an attacker can do; a coordinate without noise
    outweighs all others. The second halves, on which the attack is evaluated, do not
    enter.
    """
    first0, first1 = (np.array_split(rows, 2)[0] for rows in (negatives, positives))
    shift, spread = (
        first1.mean(axis=0) - first0.mean(axis=0),
        first0.var(axis=0) + first1.var(axis=0),
    )
    direction = shift / np.maximum(spread, 1e-12 * max(float(spread.max()), 1.0))
    return negatives @ direction, positives @ direction


def one_run_bound(
    canaries: int, guesses: int, right: int, delta: float, confidence: float = 0.95
) -> float:
    """ε from one run (Steinke, Nasr & Jagielski 2023): each canary took part or not by
    the toss of a coin.

    The auditor guessed for `guesses` of them, and was `right` so often. The smallest ε
    that is not refuted.
    """

    def possible(epsilon: float) -> bool:
        return (
            one_run_p_value(canaries, guesses, right, epsilon, delta) >= 1 - confidence
        )

    return 0.0 if possible(0.0) else bracket(possible, 0.0, 1e-6)[0]


def one_run_p_value(
    canaries: int, guesses: int, right: int, epsilon: float, delta: float
) -> float:
    """An upper bound on the probability of at least `right` right guesses under (ε,
    δ)-privacy.

    Theorem 5.2 of the paper: β + 2mδα, with β = P[X ≥ v] and α = maxᵢ P[v > X ≥ v −
    i]/i for X binomial with the odds e^ε of randomised response.
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(
            f"{right} right of {guesses} guesses on {canaries} canaries is impossible"
        )
    odds = 1 / (1 + math.exp(-epsilon))
    # P[v > X ≥ v − i], i = 1 … v
    below = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, odds))
    alpha = float((below / np.arange(1, right + 1)).max(initial=0.0))
    return min(
        1.0, float(binom.sf(right - 1, guesses, odds)) + 2 * canaries * delta * alpha
    )


def _epsilon(false_positive: float, false_negative: float, delta: float) -> float:
    """(ε, δ) allows FNR ≥ 1 − δ − e^ε FPR; so ε is at least this."""
    return max(
        0.0, float(np.log(max(1 - delta - false_negative, 1e-300) / false_positive))
    )


def _gaussian_epsilon(
    false_positive: float, false_negative: float, delta: float
) -> float:
    """Two unit Gaussians with these error rates are at least μ apart; ε(δ) of that μ,
    for Gaussian noise only.
    """
    mu = float(-ndtri(false_positive) - ndtri(false_negative))
    return (
        0.0 if mu <= 0 or delta_of(1 / mu, 0.0) <= delta else epsilon_of(1 / mu, delta)
    )


def _best_tail(negatives: Vector, positives: Vector, delta: float) -> float:
    """The threshold in the tail with the largest bound on these draws."""
    tail = np.quantile(negatives, 1 - np.geomspace(1e-3, 0.5, 60))
    candidates = np.append(tail, np.quantile(positives, [0.0, 0.01, 0.5]))
    rates = [((negatives >= t).mean(), (positives < t).mean()) for t in candidates]
    risk = 0.025
    bounds = [
        _epsilon(_upper(round(fp * len(negatives)), len(negatives), risk), fn, delta)
        for fp, fn in rates
    ]
    return float(candidates[int(np.argmax(bounds))])


def _upper(count: int, draws: int, risk: float) -> float:
    return (
        1.0 if count >= draws else float(beta.ppf(1 - risk, count + 1, draws - count))
    )
