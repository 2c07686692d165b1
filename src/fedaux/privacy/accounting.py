"""Composition of Gaussian mechanisms on the same records: in closed form, or by privacy
loss distributions.

Every total is an upper bound for the discrete noise that is drawn, not only for the
continuous noise that accountants model (`mechanism.discretisation`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from fedaux.config.sections import LocalConfig, PrivacyConfig
from fedaux.core.errors import Exit, FedauxError, unknown_name
from fedaux.messages import Release
from fedaux.privacy.mechanism import (
    GRID,
    MAX_EPSILON,
    MIN_STEPS,
    UNIT_SENSITIVITY,
    bracket,
    continuous_delta,
    discretisation,
    epsilon_of,
    release_multiplier,
)

# a noise multiplier that costs this share of the budget is kept: a search would gain
# nothing
_TIGHT = 0.995
# a smaller share of ε is a remainder of calibration margins, not a budget to train with
_MIN_REMAINDER = 1e-4
_MAX_NOISE_MULTIPLIER = 1e6  # more leaves nothing to learn from
_MIN_NOISE_MULTIPLIER = 0.1  # less would protect nothing
LARGEST_EPSILON = 10.0  # beyond, a guarantee says next to nothing
LARGEST_DELTA = 0.01  # so does one with this δ, however few the records are
# composing less noise takes very long, and hardly any plan has less
_SLOW_NOISE_MULTIPLIER = 0.3
_TOLERANCE = 5e-4  # of a calibrated noise multiplier, relative
_STRIDE = 0.25  # of the logarithm of a noise multiplier, around a guess


class BudgetError(FedauxError, RuntimeError):
    """The client's own budget does not allow a release or a round of training."""

    code = Exit.PRIVACY


@dataclass(frozen=True)
class Mechanism:
    """A subsampled Gaussian mechanism: noise on a sum of vectors of norm at most 1, one
    for each sampled record.

    `noise_multiplier` is σ in those units. Under replace-one two vectors change, which
    the accountant knows. Each of the `steps` samples every record with probability
    `sample_rate`, independently. Rate 1 takes all of them. The result is `size`
    integers, with `grid` steps to the unit.
    """

    noise_multiplier: float
    sample_rate: float = 1.0
    steps: int = 1
    size: int = 1
    grid: float = float(GRID)

    @classmethod
    def of(cls, release: Release) -> Mechanism:
        """The mechanism behind a release: its unit is a record's share of the
        sensitivity.
        """
        unit = release.sensitivity / UNIT_SENSITIVITY[release.adjacency]
        return cls(release.scale / unit, size=len(release.arrays["values"]), grid=unit)


def release_mechanism(size: int, privacy: PrivacyConfig) -> Mechanism:
    """The mechanism of a release of `size` integers. It is known before any record is
    read.
    """
    multiplier = release_multiplier(
        privacy.epsilon, privacy.delta, privacy.calibration, privacy.adjacency, size
    )
    return Mechanism(
        multiplier * UNIT_SENSITIVITY[privacy.adjacency],
        size=size,
        grid=float(MIN_STEPS),
    )


def total_epsilon(
    mechanisms: Iterable[Mechanism], delta: float, adjacency: str
) -> float:
    """An ε at this δ of all mechanisms composed, in any order, each in view of what
    came before (docs/proofs.md).

    At least the true one, or ∞ if it would be above `mechanism.MAX_EPSILON`.
    """
    if adjacency not in UNIT_SENSITIVITY:
        raise unknown_name("adjacency", adjacency, UNIT_SENSITIVITY)
    return _epsilon(_merge(mechanisms), delta, adjacency)


def training_noise_multiplier(
    epsilon: float,
    delta: float,
    adjacency: str,
    sample_rate: float,
    steps: int,
    size: int = 1,
    before: Sequence[Mechanism] = (),
    previous: float = 0.0,
) -> float:
    """The smallest σ, in units of the clipping norm, with which `steps` sampled sums
    and all `before` cost at most ε.

    The search composes about eight times. The `previous` round's σ is composed once,
    and kept if its cost is within the budget and hardly below it: the search would then
    return the same.
    """
    mechanism = Mechanism(previous, sample_rate, steps, size)
    if _SLOW_NOISE_MULTIPLIER < previous < math.inf:
        cost = total_epsilon((*before, mechanism), delta, adjacency)
        if _TIGHT * epsilon <= cost <= epsilon:
            return previous
    if total_epsilon(before, delta, adjacency) > (1 - _MIN_REMAINDER) * epsilon:
        raise _exhausted(epsilon)
    return _calibrate(
        epsilon,
        delta,
        adjacency,
        replace(mechanism, noise_multiplier=1.0),
        _merge(before),
    )


def plan_training(
    privacy: PrivacyConfig,
    local: LocalConfig,
    records: int,
    rounds: int,
    parameters: int,
    before: Sequence[Mechanism] = (),
    previous: float = 0.0,
) -> Mechanism:
    """Plan one of the remaining `rounds` of private training, which with all `before`
    cost `epsilon_budget`.
    """
    if rounds < 1:
        raise BudgetError(
            "Cannot train: training is refused, because no round of private training "
            "is left of those in privacy.train_rounds. Set more of them before the "
            "first round."
        )
    sample_rate = privacy.sample_rate or min(1.0, local.batch_size / records)
    steps = local.epochs * max(1, round(1 / sample_rate))
    target = (privacy.epsilon_budget, privacy.delta, privacy.adjacency)
    noise_multiplier = training_noise_multiplier(
        *target, sample_rate, steps * rounds, parameters, before, previous
    )
    return Mechanism(noise_multiplier, sample_rate, steps, parameters)


def weak_guarantees(privacy: PrivacyConfig, records: int = 0) -> list[str]:
    """Say in a sentence each which of ε and δ promises next to nothing. `records` are
    those of the largest client, 0 if they are not known.
    """
    sentences = []
    if privacy.epsilon_budget > LARGEST_EPSILON:
        odds = math.exp(min(privacy.epsilon_budget, 700.0))
        sentences.append(
            f"ε = {privacy.epsilon_budget:g} promises next to nothing: whatever is "
            f"released may be {odds:.2g} times as likely with a record as without it. "
            "Values of 0.1 to 10 are usual."
        )
    share = privacy.delta * max(records, 1)
    if share >= 1 or privacy.delta >= LARGEST_DELTA:
        of_records = f" of a client with {records:,} records" if records else ""
        sentences.append(
            f"δ = {privacy.delta:g} promises next to nothing: a release may publish a "
            f"record{of_records} as it is, with that probability. Set privacy.delta "
            "well below 1 / number of a client's records, 1e-5 for example."
        )
    return sentences


def round_up(epsilon: float, digits: int = 3) -> str:
    """Format ε with `digits` significant digits, rounded up: a printed ε is a
    guarantee.
    """
    if not epsilon < math.inf:
        return "∞"
    exact = Decimal(repr(float(epsilon)))
    if not exact:
        return "0"
    last = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(last, ROUND_CEILING).normalize()
    return format(rounded, "f" if -6 <= rounded.adjusted() < 16 else "E")


def _merge(mechanisms: Iterable[Mechanism]) -> tuple[Mechanism, ...]:
    """Merge equal mechanisms into one of more steps: faster to compose, and a key
    independent of their order.
    """
    steps: Counter[Mechanism] = Counter()
    for mechanism in mechanisms:
        steps[replace(mechanism, steps=1)] += mechanism.steps
    return tuple(
        replace(kind, steps=steps[kind])
        for kind in sorted(steps, key=astuple)
        if steps[kind] > 0
    )


@lru_cache(maxsize=1024)
def _epsilon(mechanisms: tuple[Mechanism, ...], delta: float, adjacency: str) -> float:
    if not mechanisms:
        return 0.0
    if not all(0 < m.noise_multiplier < math.inf for m in mechanisms):
        return math.inf
    cost = sum(
        m.steps * discretisation(m.size, m.noise_multiplier * m.grid)
        for m in mechanisms
    )
    if not cost < MAX_EPSILON:
        return math.inf
    remaining_delta = continuous_delta(delta, cost)
    full = [m for m in mechanisms if m.sample_rate == 1.0]
    sampled = [m for m in mechanisms if m.sample_rate < 1.0]
    # Gaussians compose to a Gaussian
    precision = sum(m.steps / m.noise_multiplier**2 for m in full)
    if sampled:
        epsilon = _compose_pld(sampled, precision, remaining_delta, adjacency)
    else:
        multiplier = precision**-0.5 / UNIT_SENSITIVITY[adjacency]
        epsilon = epsilon_of(multiplier, remaining_delta)
    total = epsilon + cost
    if not total <= MAX_EPSILON:
        return math.inf
    return total


def _compose_pld(
    sampled: Iterable[Mechanism], precision: float, delta: float, adjacency: str
) -> float:
    """ε by privacy loss distributions (dp-accounting), discretised pessimistically."""
    import dp_accounting as dpa  # slow to import, and only sampled mechanisms need it
    from dp_accounting.pld import PLDAccountant

    relations = {
        "replace-one": dpa.NeighboringRelation.REPLACE_ONE,
        "add-remove": dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
    }
    accountant = PLDAccountant(relations[adjacency])
    if precision > 0:
        accountant.compose(dpa.GaussianDpEvent(precision**-0.5))
    for mechanism in sampled:
        noise = dpa.GaussianDpEvent(mechanism.noise_multiplier)
        event = dpa.PoissonSampledDpEvent(mechanism.sample_rate, noise)
        accountant.compose(event, mechanism.steps)
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=256)
def _calibrate(
    epsilon: float,
    delta: float,
    adjacency: str,
    mechanism: Mechanism,
    before: tuple[Mechanism, ...],
) -> float:
    """Find the smallest noise multiplier σ whose cost is within ε.

    What is bracketed is log σ, around the root of log(cost / ε):

        log(cost / ε)
            │ ╲                     cost falls with σ, about as 1/σ: on these axes it
            │   ╲                   is nearly a line of slope −1, on which Brent's
          0 ┼─────●──────── log σ   method needs a few compositions.
            │    low high
            │      ╲

    Each composition takes long, so the bracket is built around a guess, in strides of
    0.25 of log σ: a guess is hardly ever further off than that (28 %), and in a
    narrower bracket Brent's method saves less than a second stride costs.
    """
    from scipy.optimize import brentq  # slow to import

    def excess(log_noise: float) -> float:
        candidate = replace(mechanism, noise_multiplier=math.exp(log_noise))
        cost = total_epsilon((*before, candidate), delta, adjacency)
        # a cost of 0 or ∞ has no logarithm to search on
        finite_cost = min(max(cost, 1e-300), MAX_EPSILON)
        return math.log(finite_cost / epsilon)

    # up to a σ that costs too little ...
    high = math.log(_guess(epsilon, delta, adjacency, mechanism, before))
    while excess(high) > 0:
        high += _STRIDE
        if high > math.log(_MAX_NOISE_MULTIPLIER):
            raise _exhausted(epsilon)
    # ... and down to one that costs too much, or hardly protects
    low = high - _STRIDE
    while excess(low) <= 0 and low > math.log(_MIN_NOISE_MULTIPLIER):
        high = low
        low -= _STRIDE
    log_noise = low
    if excess(low) > 0:
        log_noise = brentq(excess, low, high, xtol=_TOLERANCE / 4)
    # the root may be approached from either side, but a plan must not exceed its budget
    while excess(log_noise) > 0:
        log_noise += _TOLERANCE / 2
    return math.exp(log_noise)


def _guess(
    epsilon: float,
    delta: float,
    adjacency: str,
    mechanism: Mechanism,
    before: tuple[Mechanism, ...],
) -> float:
    """Guess σ: many sampled steps are nearly one Gaussian, by a central limit theorem
    (Bu et al., 2020).

    T steps at the rate p and noise σ cost what one Gaussian of the precision
    μ² = T p² (e^{1/σ²} − 1) costs, and precisions add up. So the precision that ε
    allows in all, less that of what came before, gives σ.
    """
    unit = UNIT_SENSITIVITY[adjacency]
    smallest = bracket(lambda scale: epsilon_of(scale, delta) <= epsilon, 0.0, 1e-2)[1]
    allowed = (smallest * unit) ** -2.0
    spent = 0.0
    for earlier in before:
        per_step = math.expm1(min(earlier.noise_multiplier**-2.0, 100.0))
        spent += earlier.steps * earlier.sample_rate**2 * per_step
    # the theorem overrates what came before now and then: some is always left
    left = max(allowed - spent, 1e-4 * allowed)
    sampled_steps = mechanism.steps * mechanism.sample_rate**2
    sigma = 1 / math.sqrt(math.log1p(left / sampled_steps))
    return min(max(sigma, _SLOW_NOISE_MULTIPLIER), _MAX_NOISE_MULTIPLIER)


def _exhausted(epsilon: float) -> BudgetError:
    return BudgetError(
        "Cannot train: training is refused, because nothing is left of this client's ε "
        f"= {epsilon:g} for it. Ask the owner, whose setting privacy.epsilon_total "
        "limits what scores and training may cost together."
    )
