"""What several mechanisms on the same records cost together, by privacy loss distributions (dp-accounting)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from fedaux.config import LocalConfig, PrivacyConfig
from fedaux.privacy.bounded import REACH


@dataclass(frozen=True)
class Spend:
    """Gaussian noise on a sum of vectors of norm at most 1, one for each record that takes part.

    `noise` is σ in those units; under replace-one two vectors change, which the accountant knows. Each of the `steps`
    draws every record with probability `rate`, independently; rate 1 takes all of them.
    """

    noise: float
    rate: float = 1.0
    steps: int = 1


def total_epsilon(spends: Iterable[Spend], delta: float, adjacency: str) -> float:
    """ε at this δ of everything together, in any order and even if each was chosen in view of the others' results."""
    return _epsilon(_merged(spends), delta, adjacency)


def training_noise(epsilon: float, delta: float, adjacency: str, rate: float, steps: int, known: float = 0.0) -> float:
    """The smallest σ (in units of the clipping norm) for which `steps` sampled sums cost at most ε at this δ.

    Finding it composes some twenty times. A σ that is `known` from before is composed twice, and taken if it is enough
    and a little less would not be.
    """
    if known > 0.3:  # composing less noise takes very long, and no plan has so little
        exact, less = (_epsilon((Spend(one, rate, steps),), delta, adjacency) for one in (known, 0.998 * known))
        if exact <= epsilon < less:
            return known
    return _calibrated(epsilon, delta, adjacency, rate, steps)


def plan_training(privacy: PrivacyConfig, local: LocalConfig, size: int, rounds: int, known: float = 0.0) -> Spend:
    """What one of so many rounds of private training costs: together they cost `train_epsilon`."""
    rate = privacy.train_rate or min(1.0, local.batch / size)
    steps = local.epochs * max(1, round(1 / rate))
    noise = training_noise(privacy.train_epsilon, privacy.delta, privacy.adjacency, rate, steps * rounds, known)
    return Spend(noise, rate, steps)


def _merged(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    """Equal mechanisms as one of more steps: faster to compose, and a key that does not depend on their order."""
    steps: dict[tuple[float, float], int] = {}
    for one in spends:
        steps[one.noise, one.rate] = steps.get((one.noise, one.rate), 0) + one.steps
    return tuple(Spend(noise, rate, count) for (noise, rate), count in sorted(steps.items()))


@lru_cache(maxsize=1024)
def _epsilon(spends: tuple[Spend, ...], delta: float, adjacency: str) -> float:
    if not spends:
        return 0.0
    import dp_accounting as dpa  # slow to import, and only accounting needs it
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(_relation(adjacency))
    for one in spends:
        gaussian = dpa.GaussianDpEvent(one.noise)
        event = gaussian if one.rate == 1.0 else dpa.PoissonSampledDpEvent(one.rate, gaussian)
        accountant.compose(event, one.steps)
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=256)
def _calibrated(epsilon: float, delta: float, adjacency: str, rate: float, steps: int) -> float:
    low, high = 0.1, 1.0
    while _epsilon((Spend(high, rate, steps),), delta, adjacency) > epsilon:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:  # always from the safe side
        middle = (low + high) / 2
        if _epsilon((Spend(middle, rate, steps),), delta, adjacency) > epsilon:
            low = middle
        else:
            high = middle
    return high


def _relation(adjacency: str) -> object:
    import dp_accounting as dpa

    if adjacency not in REACH:
        raise ValueError(f"there is no adjacency {adjacency!r}; choose from {', '.join(REACH)}")
    relation = dpa.NeighboringRelation
    return relation.REPLACE_ONE if adjacency == "replace-one" else relation.ADD_OR_REMOVE_ONE
