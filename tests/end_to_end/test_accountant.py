"""Training on all records or on samples, calibrated: enough noise, hardly more, one
total for everything.
"""

import math
from pathlib import Path

import pytest

from fedaux.config.sections import LocalConfig, PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.privacy import mechanism
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.account_file import TRAINING, Entry
from fedaux.privacy.accounting import (
    BudgetError,
    Mechanism,
    plan_training,
    release_mechanism,
    total_epsilon,
    training_noise_multiplier,
)
from fedaux.privacy.mechanism import GRID, UNIT_SENSITIVITY
from helpers.accounts import enter

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


# in closed form, and by privacy loss distributions
RATES = pytest.mark.parametrize("rate", [1.0, 0.05])


@RATES
def test_a_noise_that_is_known_is_checked_and_not_just_believed(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (scores(0.3),)
    found = training_noise_multiplier(
        1.0, DELTA, "replace-one", rate, 100, before=before
    )
    with monkeypatch.context() as patch:
        patch.setattr(
            "fedaux.privacy.accounting._calibrate",
            lambda *_: pytest.fail("searched for it again"),
        )
        assert (
            training_noise_multiplier(
                1.0, DELTA, "replace-one", rate, 100, before=before, previous=found
            )
            == found
        )
        half = (*before, Mechanism(found, rate, 40))
        assert (
            training_noise_multiplier(
                1.0, DELTA, "replace-one", rate, 60, before=half, previous=found
            )
            == found
        )
    for wrong in (0.9 * found, 1.5 * found, -1.0, float("nan"), math.inf, 0.01):
        assert (
            training_noise_multiplier(
                1.0, DELTA, "replace-one", rate, 100, before=before, previous=wrong
            )
            == found
        )


@RATES
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_training_noise_is_enough_and_hardly_more(adjacency: str, rate: float) -> None:
    noise = training_noise_multiplier(1.0, DELTA, adjacency, rate, 200)
    assert total_epsilon([Mechanism(noise, rate, 200)], DELTA, adjacency) <= 1.0
    assert total_epsilon([Mechanism(0.99 * noise, rate, 200)], DELTA, adjacency) > 1.0


@RATES
@pytest.mark.parametrize("epsilon", [0.1, 0.9])
def test_training_after_scores_spends_the_total_and_never_more(
    epsilon: float, rate: float
) -> None:
    own = 0.0 if rate < 1 else rate  # 0: batches of 32 records
    privacy = PrivacyConfig(
        epsilon=epsilon, epsilon_total=1.0, private_training=True, sample_rate=own
    )
    before = (scores(epsilon),)
    plan = plan_training(
        privacy, LocalConfig(epochs=2, batch_size=32), 640, 5, 650, before
    )
    assert (plan.sample_rate, plan.steps, plan.size) == (rate, 2 / rate, 650)
    assert 0.995 < total_epsilon([*before, *[plan] * 5], DELTA, "replace-one") <= 1.0
    assert total_epsilon([*before, *[plan] * 2], DELTA, "replace-one") < 0.99


@RATES
def test_scores_and_training_share_one_total_however_the_rounds_are_raised(
    rate: float, tmp_path: Path
) -> None:
    """An owner who raises the number of rounds step by step gets more noise, not more ε
    (1.66 under 1 before).
    """
    privacy = PrivacyConfig(
        epsilon=0.1, epsilon_total=1.0, private_training=True, sample_rate=rate
    )
    account = BudgetStore(tmp_path, privacy)
    enter(account, "x", release_mechanism(2, privacy))

    def train(rounds: int) -> Account:
        def plan(entries: list[Entry]) -> Mechanism:
            trained = [entry for entry in entries if entry.trains]
            previous = trained[-1].mechanism.noise_multiplier if trained else 0.0
            spent = [entry.mechanism for entry in entries]
            if len(trained) >= rounds:
                raise BudgetError("all rounds are done")
            return plan_training(
                privacy, LocalConfig(), 640, rounds - len(trained), 50, spent, previous
            )

        number = account.account().entries
        request = f"{TRAINING}round {number}"
        account.answer(
            request,
            tmp_path / f"{number}",
            plan,
            lambda: None,
            lambda mechanism, read: b"model",
        )
        return account.account()

    totals = []
    for rounds in (3, 6, 12):
        while True:
            try:
                totals.append(train(rounds).epsilon)
            except BudgetError:
                break
    assert totals == sorted(totals)
    assert 0.99 < totals[2] <= 1.0  # the plan of three rounds spends the total
    assert len(totals) <= 12
    assert totals[-1] <= 1.0
