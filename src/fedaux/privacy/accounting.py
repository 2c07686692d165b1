"""What several mechanisms on the same records cost together: in closed form, or by privacy loss distributions.

Every total is an upper bound for the discrete noise that is drawn, not only for the continuous one that accountants
know (`gaussian.discretisation`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from fedaux.config.schema import LocalConfig, PrivacyConfig
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.messages import Release
from fedaux.privacy import gaussian
from fedaux.privacy.clipping import GRID, REACH

_USED = 0.995  # a plan that costs this share of what it may is as good as any
_LEFT = 1e-4  # less of ε than this share is what calibration left by its margins, not something to train with
_MOST_NOISE = 1e6  # more leaves nothing to learn from


class BudgetError(FedauxError, RuntimeError):
    """Something that the client's own settings do not allow."""

    code = Exit.PRIVACY


@dataclass(frozen=True)
class Spend:
    """Gaussian noise on a sum of vectors of norm at most 1, one for each record that takes part.

    `noise` is σ in those units; under replace-one two vectors change, which the accountant knows. Each of the `steps`
    draws every record with probability `rate`, independently; rate 1 takes all of them. What is sent are `size`
    integers, `grid` to the unit.
    """

    noise: float
    rate: float = 1.0
    steps: int = 1
    size: int = 1
    grid: float = float(GRID)

    @classmethod
    def of(cls, release: Release) -> Spend:
        """A release as the accountant counts it: its unit is a record's share of the sensitivity."""
        unit = release.sensitivity / REACH[release.adjacency]
        return cls(release.scale / unit, size=len(release.arrays["values"]), grid=unit)


def total_epsilon(spends: Iterable[Spend], delta: float, adjacency: str) -> float:
    """An ε at this δ of everything together, in any order and even if each was chosen in view of the others' results.

    Never below the true one; ∞ where it would be above `gaussian.LARGEST`.
    """
    if adjacency not in REACH:
        raise ValueError(f"there is no adjacency {adjacency!r}; choose from {', '.join(REACH)}")
    return _epsilon(_merged(spends), delta, adjacency)


def training_noise(
    epsilon: float,
    delta: float,
    adjacency: str,
    rate: float,
    steps: int,
    size: int = 1,
    before: Sequence[Spend] = (),
    known: float = 0.0,
) -> float:
    """The smallest σ, in units of the clipping norm, with which so many sampled sums and all `before` cost at most ε.

    Finding it composes some twenty times. A σ that is `known` from before is composed once, and taken if it costs no
    more than it may and hardly less: then it is what a search would find.
    """
    one = Spend(known, rate, steps, size)
    if 0.3 < known < math.inf:  # composing less noise takes very long, and no plan has so little
        cost = total_epsilon((*before, one), delta, adjacency)
        if _USED * epsilon <= cost <= epsilon:
            return known
    if total_epsilon(before, delta, adjacency) > (1 - _LEFT) * epsilon:
        raise BudgetError(_spent(epsilon))
    return _calibrated(epsilon, delta, adjacency, replace(one, noise=1.0), _merged(before))


def plan_training(
    privacy: PrivacyConfig,
    local: LocalConfig,
    records: int,
    rounds: int,
    parameters: int,
    before: Sequence[Spend] = (),
    known: float = 0.0,
) -> Spend:
    """One of so many further rounds of private training, which together with all `before` cost `epsilon_budget`."""
    if rounds < 1:
        raise BudgetError(
            "training is refused: no round of private training is left; privacy.train_rounds says how many"
        )
    rate = privacy.sample_rate or min(1.0, local.batch_size / records)
    steps = local.epochs * max(1, round(1 / rate))
    asked = (privacy.epsilon_budget, privacy.delta, privacy.adjacency, rate, steps * rounds, parameters)
    return Spend(training_noise(*asked, before, known), rate, steps, parameters)


def round_up(epsilon: float, digits: int = 3) -> str:
    """To so many significant digits, and never below the value: what is printed is a promise."""
    if not epsilon < math.inf:
        return "∞"
    exact = Decimal(repr(float(epsilon)))
    if not exact:
        return "0"
    last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(last, ROUND_CEILING).normalize()
    return format(rounded, "f" if -6 <= rounded.adjusted() < 16 else "E")


def _merged(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    """Equal mechanisms as one of more steps: faster to compose, and a key that does not depend on their order."""
    steps: dict[Spend, int] = {}
    for one in spends:
        kind = replace(one, steps=1)
        steps[kind] = steps.get(kind, 0) + one.steps
    kinds = sorted(steps, key=lambda one: (one.noise, one.rate, one.size, one.grid))
    return tuple(replace(one, steps=steps[one]) for one in kinds if steps[one] > 0)


@lru_cache(maxsize=1024)
def _epsilon(spends: tuple[Spend, ...], delta: float, adjacency: str) -> float:
    if not spends:
        return 0.0
    if not all(0 < one.noise < math.inf for one in spends):
        return math.inf
    cost = sum(one.steps * gaussian.discretisation(one.size, one.noise * one.grid) for one in spends)
    if not cost < gaussian.LARGEST:
        return math.inf
    left = gaussian.continuous_delta(delta, cost)
    precision = sum(one.steps / one.noise**2 for one in spends if one.rate == 1.0)  # Gaussians compose to a Gaussian
    sampled = [one for one in spends if one.rate < 1.0]
    if sampled:
        found = _composed(sampled, precision, left, adjacency)
    else:
        found = gaussian.epsilon_of(precision**-0.5 / REACH[adjacency], left)
    return found + cost if found + cost <= gaussian.LARGEST else math.inf


def _composed(sampled: Iterable[Spend], precision: float, delta: float, adjacency: str) -> float:
    """By privacy loss distributions (dp-accounting), rounded against us."""
    import dp_accounting as dpa  # slow to import, and only sampled mechanisms need it
    from dp_accounting.pld import PLDAccountant

    relation = dpa.NeighboringRelation
    accountant = PLDAccountant(relation.REPLACE_ONE if adjacency == "replace-one" else relation.ADD_OR_REMOVE_ONE)
    if precision > 0:
        accountant.compose(dpa.GaussianDpEvent(precision**-0.5))
    for one in sampled:
        accountant.compose(dpa.PoissonSampledDpEvent(one.rate, dpa.GaussianDpEvent(one.noise)), one.steps)
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=256)
def _calibrated(epsilon: float, delta: float, adjacency: str, kind: Spend, before: tuple[Spend, ...]) -> float:
    def fits(noise: float) -> bool:
        return total_epsilon((*before, replace(kind, noise=noise)), delta, adjacency) <= epsilon

    low, high = 0.1, 1.0
    while not fits(high):
        low, high = high, 2 * high
        if high > _MOST_NOISE:
            raise BudgetError(_spent(epsilon))
    while high - low > 5e-4 * high:  # always from the safe side
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _spent(epsilon: float) -> str:
    return (
        f"training is refused: nothing is left of this client's ε = {epsilon:g} for it. Its own setting "
        "privacy.epsilon_total says what scores and training may cost together."
    )
