"""What mechanisms cost together: never below the truth, and against other
accountants.
"""

import math
from collections.abc import Iterable
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedaux.config.sections import LocalConfig, PrivacyConfig
from fedaux.core.errors import Exit
from fedaux.privacy import accounting, mechanism
from fedaux.privacy.accounting import (
    BudgetError,
    Mechanism,
    plan_training,
    round_up,
    total_epsilon,
    training_noise_multiplier,
)
from fedaux.privacy.mechanism import GRID, UNIT_SENSITIVITY

DELTA = 1e-5


def scores(
    epsilon: float, adjacency: str = "replace-one", size: int = 330
) -> Mechanism:
    """A release as it is calibrated."""
    reach = float(UNIT_SENSITIVITY[adjacency] * GRID)
    noise = (
        mechanism.multiplier(epsilon, DELTA, "analytic", size, reach)
        * UNIT_SENSITIVITY[adjacency]
    )
    return Mechanism(noise, size=size)


def integrated(noise: float, reach: float, epsilon: float) -> float:
    """δ(ε) of a Gaussian by the trapezoid rule."""
    x = np.linspace(-40 * noise, 40 * noise + reach, 2_000_001)
    p, q = stats.norm.pdf(x, reach, noise), stats.norm.pdf(x, 0.0, noise)
    return float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), x))


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    "mechanisms",
    [
        [Mechanism(60.0)],
        [Mechanism(8.0), Mechanism(5.0, steps=3, size=1000)],
        [Mechanism(1.5)] * 4,
    ],
    ids=str,
)
def test_whole_sums_compose_in_closed_form(
    mechanisms: list[Mechanism], adjacency: str
) -> None:
    found = total_epsilon(mechanisms, DELTA, adjacency)
    replaced = dpa.NeighboringRelation.REPLACE_ONE
    accountant = PLDAccountant(
        replaced
        if adjacency == "replace-one"
        else dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    for one in mechanisms:
        accountant.compose(dpa.GaussianDpEvent(one.noise_multiplier), one.steps)
    assert found == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3, abs=2e-5)
    noise = sum(one.steps / one.noise_multiplier**2 for one in mechanisms) ** -0.5
    assert integrated(noise, UNIT_SENSITIVITY[adjacency], found) == pytest.approx(
        DELTA, rel=1e-5
    )
    assert integrated(noise, UNIT_SENSITIVITY[adjacency], found) <= DELTA * (1 + 1e-8)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 4.0, 20.0])
def test_a_release_costs_what_it_was_calibrated_for_and_never_more(
    epsilon: float, adjacency: str
) -> None:
    assert (
        (1 - 1e-5) * epsilon
        < total_epsilon([scores(epsilon, adjacency)], DELTA, adjacency)
        <= epsilon
    )


def test_coarse_steps_and_many_numbers_cost_more() -> None:
    fine, many, coarse = (
        Mechanism(5.0),
        Mechanism(5.0, size=10**6, grid=2.0**14),
        Mechanism(5.0, grid=1.0),
    )
    costs = [total_epsilon([one], DELTA, "add-remove") for one in (fine, many, coarse)]
    assert costs[0] + 1e-5 < costs[1] < 1.1 * costs[0]
    assert costs[2] == math.inf


@pytest.mark.parametrize(
    "mechanism", [Mechanism(0.0), Mechanism(float("nan")), Mechanism(1e-3)], ids=str
)
def test_noise_that_hides_nothing_costs_everything(mechanism: Mechanism) -> None:
    assert total_epsilon([Mechanism(5.0), mechanism], DELTA, "replace-one") == math.inf


def test_nothing_costs_nothing() -> None:
    assert (
        total_epsilon([], DELTA, "replace-one")
        == total_epsilon([Mechanism(0.0, steps=0)], DELTA, "replace-one")
        == 0.0
    )
    with pytest.raises(ValueError, match="the adjacency 'x': it is unknown"):
        total_epsilon([], DELTA, "x")


def test_sampled_training_has_the_noise_that_bisection_finds_with_few_compositions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, composed = (Mechanism(8.0, size=100),), list[float]()

    def cost(noise: float) -> float:
        return total_epsilon(
            (*before, Mechanism(noise, 0.08, 90, 650)), DELTA, "replace-one"
        )

    def counted(sampled: Iterable[Mechanism], *rest: Any) -> float:
        composed.append(1)
        return compose(sampled, *rest)

    compose = accounting._compose_pld
    low, high = mechanism.bracket(lambda noise: cost(noise) <= 1.0, 4.0, 1e-4)
    monkeypatch.setattr(accounting, "_compose_pld", counted)
    found = training_noise_multiplier(1.0, DELTA, "replace-one", 0.08, 90, 650, before)
    assert len(composed) <= 8
    assert cost(found) <= 1.0
    assert low < found < (1 + 1e-3) * high


def test_a_plan_that_changes_on_the_way_still_ends_at_the_total() -> None:
    """Two of five rounds are done when the owner asks for ten in all: the others get
    more noise.
    """
    privacy = PrivacyConfig(epsilon_total=1.0, private_training=True, sample_rate=1.0)
    first = plan_training(privacy, LocalConfig(), 640, 5, 650)
    done = (first, first)
    rest = plan_training(
        privacy, LocalConfig(), 640, 8, 650, done, previous=first.noise_multiplier
    )
    assert rest.noise_multiplier > first.noise_multiplier
    assert 0.995 < total_epsilon([*done, *[rest] * 8], DELTA, "replace-one") <= 1.0


def test_when_nothing_is_left_training_is_refused() -> None:
    privacy = PrivacyConfig(epsilon=1.0, epsilon_total=1.0, private_training=True)
    spent = (Mechanism(scores(1.0).noise_multiplier * 0.999),)
    with pytest.raises(
        BudgetError,
        match=r"nothing is left of this client's ε = 1 .*privacy\.epsilon_total",
    ) as error:
        plan_training(privacy, LocalConfig(), 640, 5, 650, spent)
    assert error.value.code == Exit.PRIVACY
    # but for the margins of calibration
    with pytest.raises(BudgetError, match="nothing is left"):
        plan_training(privacy, LocalConfig(), 640, 5, 650, (scores(1.0),))
    with pytest.raises(BudgetError, match="no round of private training is left"):
        plan_training(privacy, LocalConfig(), 640, 0, 650)


@given(st.floats(min_value=0.0, allow_nan=False), st.integers(1, 6))
def test_what_is_printed_is_never_below(value: float, digits: int) -> None:
    said = round_up(value, digits)
    assert (
        said == "∞"
        if value == math.inf
        else value <= float(said) <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        *[
            (0.1, "0.1"),
            (2.0026, "2.01"),
            (2.0, "2"),
            (0.30000000000000004, "0.301"),
            (999.6, "1000"),
            (0.0, "0"),
        ],
        *[
            (math.inf, "∞"),
            (123456.0, "124000"),
            (0.000123456, "0.000124"),
            (1e-9, "1E-9"),
        ],
    ],
)
def test_how_an_epsilon_is_printed(value: float, said: str) -> None:
    assert round_up(value) == said
