"""What a few seeds can say: intervals, differences paired by seed, rounds to a target.

Two arms with the same seed have the same split and the same start, so their difference
varies less than either of them. Intervals and tests are Student's: seeds are few, and
their differences not far from normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from fedaux.report.arm_tables import tasks
from fedaux.report.arms import ArmResult
from fedaux.report.tables import to_csv

FEWEST_SEEDS = 3  # seeds; fewer have an interval that says nothing


@dataclass(frozen=True)
class Difference:
    """Accuracy after the last round, `arm` less `reference`, over the seeds that both
    have.
    """

    arm: str
    reference: str
    seeds: int
    mean: float
    low: float  # of the interval that covers the mean in 95 % of cases
    high: float
    p: float  # of no difference: paired t-test, two-sided
    corrected: float  # the same by Holm, for all that are compared with this reference

    def cells(self) -> tuple[str, ...]:
        """For a table of text, in points of per cent."""
        mean = f"{100 * self.mean:+.1f}"
        between = f"{100 * self.low:+.1f} to {100 * self.high:+.1f}"
        p = "< 0.001" if self.corrected < 0.001 else f"{self.corrected:.3f}"
        return (self.arm, mean, between, p, str(self.seeds))


HEADER = ("difference, in points", "mean", "95 % interval", "p, corrected", "seeds")


def interval(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the mean, or None for fewer than
    `FEWEST_SEEDS` values.
    """
    if len(values) < FEWEST_SEEDS:
        return None
    mean = float(values.mean())
    spread = float(values.std(ddof=1))
    quantile = float(stdtrit(len(values) - 1, 0.975))
    half_width = float(quantile * spread / np.sqrt(len(values)))
    return mean - half_width, mean + half_width


def paired_p(differences: NDArray[np.float64]) -> float:
    """Return the two-sided p-value of a zero mean: 0 if all differences are equal and
    not zero, 1 if all are zero.
    """
    count = len(differences)
    spread = float(differences.std(ddof=1))
    if spread == 0:
        return 1.0 if differences[0] == 0 else 0.0
    statistic = abs(differences.mean()) / (spread / np.sqrt(count))
    return float(2 * stdtr(count - 1, -statistic))


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected so that all of them together err at the stated rate."""
    if not values:
        return []
    order = np.argsort(values, kind="stable")
    # the smallest counts as often as there are comparisons, the next once less, …
    steps = [(len(values) - rank) * values[i] for rank, i in enumerate(order)]
    corrected = np.empty(len(values))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(value) for value in corrected]


def differences(arms: Sequence[ArmResult]) -> list[Difference]:
    """Compare every arm with the best arm on the same problem."""
    problems = tasks(arms)
    compared: list[Difference] = []
    for problem in dict.fromkeys(problems.values()):
        rivals = [arm for arm in arms if problems[arm.label] == problem]
        compared += _differences_to_best(rivals)
    return compared


def _differences_to_best(rivals: Sequence[ArmResult]) -> list[Difference]:
    best = max(rivals, key=lambda arm: arm.mean_accuracy)
    others = [_difference(arm, best) for arm in rivals if arm is not best]
    pairs = [pair for pair in others if pair is not None]
    corrected = holm([pair.p for pair in pairs])
    return [
        replace(pair, corrected=p) for pair, p in zip(pairs, corrected, strict=True)
    ]


def _difference(arm: ArmResult, reference: ArmResult) -> Difference | None:
    ends = dict(zip(arm.seeds, arm.curves[:, -1], strict=True))
    reference_ends = dict(zip(reference.seeds, reference.curves[:, -1], strict=True))
    shared_seeds = [seed for seed in ends if seed in reference_ends]
    values = np.array([ends[seed] - reference_ends[seed] for seed in shared_seeds])
    between = interval(values)
    if between is None:
        return None
    low, high = between
    p = paired_p(values)
    return Difference(
        arm=arm.label,
        reference=reference.label,
        seeds=len(values),
        mean=float(values.mean()),
        low=low,
        high=high,
        p=p,
        corrected=p,
    )


def close_to_best(arms: Sequence[ArmResult]) -> list[ArmResult]:
    """Return the arms that their seeds cannot tell from the best: the interval of the
    difference includes a tie, or there are too few seeds for one.
    """
    best = max(arms, key=lambda arm: arm.mean_accuracy)
    close = []
    for arm in arms:
        if arm is best:
            continue
        difference = _difference(arm, best)
        if difference is None or difference.high >= 0:
            close.append(arm)
    return close


def rounds_to_target(curves: NDArray[np.float64], target: float) -> list[int | None]:
    """Return for each seed the first round with at least this accuracy, or None if there
    is none.
    """
    reached = curves >= target
    return [int(row.argmax()) + 1 if row.any() else None for row in reached]


def default_target(arms: Sequence[ArmResult]) -> float:
    """Return the second best accuracy after the last round, in whole per cent, as the
    default target.
    """
    ends = sorted(arm.mean_accuracy for arm in arms)
    second_best = ends[-2] if len(ends) > 1 else ends[-1]
    return float(np.floor(100 * second_best)) / 100


def describe_rounds(rounds: Sequence[int | None]) -> str:
    """`4`, `4 to 7`, `4 to 7, in 2 of 3 seeds`, `never`."""
    reached = sorted(number for number in rounds if number is not None)
    if not reached:
        return "never"
    first = reached[0]
    last = reached[-1]
    words = f"{first}" if first == last else f"{first} to {last}"
    if len(reached) < len(rounds):
        words += f", in {len(reached)} of {len(rounds)} seeds"
    return words


def differences_csv(pairs: Sequence[Difference]) -> str:
    """Shares of 1, as in table.csv."""
    names = ("arm", "reference", "seeds", "mean", "low", "high", "p", "p_holm")
    return to_csv([names, *(tuple(vars(pair).values()) for pair in pairs)])
