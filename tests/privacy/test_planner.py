"""The planner reads public data only, and what it says moves with ε and the number of records as it must."""

import numpy as np
import pytest

from fedaux.prepare.ratios import bayes_ratio
from fedaux.prepare.scoring import Reference
from fedaux.privacy.bounded import clip_rows
from fedaux.privacy.gaussian import multiplier
from fedaux.privacy.planner import Planner


@pytest.fixture(scope="module")
def planner() -> Planner:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 4)) * 0.4
    rows = clip_rows(centres[rng.integers(6, size=600)] + 0.1 * rng.normal(size=(600, 4)))
    reference = Reference(rows)
    return Planner.of(rows, 6, lambda m, s, n: bayes_ratio(m, reference, s, n), 1e-5, "replace-one", "analytic")


def test_the_noise_is_the_releases(planner: Planner) -> None:
    found = planner.plan(0.5, 200)
    assert found.sigma == pytest.approx(multiplier(0.5, 1e-5, "analytic") * 2 / 200)
    assert planner.clients == 6


def test_more_budget_or_more_records_keep_more(planner: Planner) -> None:
    kept = planner.curve([0.01, 0.1, 1.0, 10.0], 200)
    assert kept == sorted(kept)
    assert kept[0] < 0.1
    assert kept[-1] > 0.9
    assert planner.plan(0.1, 2000).kept > planner.plan(0.1, 200).kept
    drowned, clear = planner.plan(0.001, 200), planner.plan(10.0, 200)
    assert drowned.teachers > 5.5  # of 6: as good as equal weights
    assert clear.teachers < 2.5
    assert drowned.right == pytest.approx(1 / 6, abs=0.03)


def test_what_it_advises_does_what_it_says(planner: Planner) -> None:
    epsilon = planner.epsilon_for(0.5, 200)
    assert planner.plan(epsilon, 200).kept >= 0.5
    assert planner.plan(0.7 * epsilon, 200).kept < 0.5
    records = planner.records_for(0.5, 0.1, 200)
    assert planner.plan(0.1, records).kept == pytest.approx(0.5, abs=0.08)
    assert planner.plan(0.1, records // 2).kept < 0.45


def test_too_few_public_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot stand for 10 clients"):
        Planner.of(np.zeros((12, 2)), 10, lambda m, s, n: lambda rows: rows[:, 0], 1e-5, "replace-one", "opendp")
