"""The planner reads public data only, and what it says moves with ε and the number of
records as it must.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedaux.config.sections import FederationConfig, PrivacyConfig
from fedaux.core.noisy_metrics import estimates
from fedaux.privacy.accounting import Mechanism, release_mechanism, total_epsilon
from fedaux.privacy.looks import scale_of
from fedaux.privacy.mechanism import GRID, multiplier
from fedaux.runs.look_plan import plan_look
from fedaux.runs.planner import Planner
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.server.site_test import tallies_of_test

LOOK = PrivacyConfig(look_epsilon=1.0)
FEDERATION = FederationConfig(secure=True)


@pytest.fixture(scope="module")
def planner() -> Planner:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 4)) * 0.4
    rows = centres[rng.integers(6, size=600)] + 0.1 * rng.normal(size=(600, 4))
    scorer = ClassEmbeddingScorer(6, 4)
    return Planner.of(
        scorer, rows, 6, 6, PrivacyConfig(calibration="analytic"), FEDERATION
    )


def test_the_noise_is_the_releases(planner: Planner) -> None:
    found = planner.plan(0.5, 200)
    assert found.sigma == pytest.approx(
        multiplier(0.5, 1e-5, "analytic", 4, 2.0 * GRID) * 2 / 200
    )
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


def test_a_look_costs_what_an_account_will_say(planner: Planner) -> None:
    found = planner.look(2000, 1.0, 1.0)
    privacy = replace(planner.privacy, epsilon=1.0, look_epsilon=1.0)
    tallies = tallies_of_test(6)
    scale = scale_of(tallies, tallies.size(6), privacy)
    release = release_mechanism(30, privacy)
    look = Mechanism(
        scale / (tallies.sensitivity("replace-one") / 2),
        size=tallies.size(6),
        grid=tallies.sensitivity("replace-one") / 2,
    )
    total = total_epsilon([release, look], 1e-5, "replace-one")
    assert found.total == pytest.approx(total, rel=1e-6)
    assert 1.46 < found.total < 1.47


def test_the_noise_of_a_look_is_that_of_its_estimate(planner: Planner) -> None:
    """The interval that is planned is the one that a test of this size will have."""
    planned = plan_look(2000, 4, 2, LOOK, FEDERATION, 6)
    tallies = tallies_of_test(2)
    scale = scale_of(tallies, tallies.size(2), LOOK)
    answers = {"answers": [400.0, 1600.0]}
    found = estimates(answers, {"answers": scale / tallies.by_name["answers"].steps})
    measured = found["accuracy"]
    # with one colluder among four sites, three add all the noise that is needed
    ideal = planned.noise_apart / 2
    assert planned.noise == pytest.approx(ideal * math.sqrt(4 / 3))
    assert measured.noise == pytest.approx(ideal, rel=0.15)
    more = plan_look(8000, 4, 2, LOOK, FEDERATION, 6)
    assert more.noise_apart == pytest.approx(planned.noise_apart / 4)
    assert more.sampling == pytest.approx(planned.sampling / 2)


def test_two_sites_have_no_secure_sum() -> None:
    planned = plan_look(2000, 2, 2, LOOK, FEDERATION, 6)
    assert planned.noise is None
    assert planned.half_width is None
    assert planned.half_width_apart > 0


def test_too_few_public_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot represent 10 classes"):
        Planner.of(
            ClassEmbeddingScorer(10),
            np.zeros((12, 2)),
            10,
            10,
            PrivacyConfig(),
            FEDERATION,
        )


def test_clients_that_share_a_class_keep_more_of_it() -> None:
    rng = np.random.default_rng(1)
    rows = 0.4 * rng.normal(size=(5, 8))[rng.integers(5, size=800)] + 0.15 * rng.normal(
        size=(800, 8)
    )
    few, many = (
        Planner.of(
            ClassEmbeddingScorer(5, 8), rows, n, 5, PrivacyConfig(), FEDERATION
        ).plan(0.2, 300)
        for n in (5, 50)
    )
    assert many.kept > few.kept
    assert many.even == pytest.approx(few.even) == pytest.approx(0.2)
