"""Statistics over seeds, against SciPy's own and by hand."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedaux.report.arms import ArmResult
from fedaux.report.statistics import (
    close_to_best,
    default_target,
    describe_rounds,
    differences,
    differences_csv,
    holm,
    interval,
    paired_p,
    rounds_to_target,
)

RNG = np.random.default_rng(0)


def arm(
    label: str, ends: list[float], seeds: tuple[int, ...] = (), alpha: float = 1.0
) -> ArmResult:
    curves = np.array([[end / 2, end] for end in ends])
    return ArmResult(
        label,
        {"data.alpha": alpha},
        {},
        seeds or tuple(range(len(ends))),
        (Path(),) * len(ends),
        curves,
    )


@pytest.mark.parametrize("count", [3, 5, 20])
def test_interval_and_test_are_those_of_scipy(count: int) -> None:
    values = RNG.normal(0.1, 0.05, count)
    expected = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert interval(values) == pytest.approx(expected)
    assert paired_p(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert interval(values[:2]) is None
    # no spread is no error
    assert (paired_p(np.zeros(3)), paired_p(np.full(3, 0.25))) == (1.0, 0.0)


def test_an_arm_is_close_unless_its_interval_excludes_a_tie() -> None:
    best = arm("best", [0.9, 0.8, 0.7])
    far = arm("far", [0.8, 0.7, 0.601])
    noisy = arm("noisy", [0.5, 0.85, 0.69])
    equal = arm("equal", [0.9, 0.8, 0.7])
    assert close_to_best([far, best, noisy, equal]) == [noisy, equal]
    one_seed = [arm("best", [0.9]), arm("far", [0.1])]
    assert close_to_best(one_seed) == one_seed[1:]  # one seed excludes nothing


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_arms_are_paired_by_seed_with_the_best_on_their_problem() -> None:
    best, other = [0.9, 0.8, 0.7], [0.88, 0.79, 0.67]
    arms = [
        arm("other", other),
        arm("best", best),
        arm("harder", [0.1, 0.1, 0.2], alpha=0.01),
    ]
    (found,) = differences(arms)  # the harder problem has one arm alone
    expected = stats.ttest_rel(other, best)
    assert (found.arm, found.reference, found.seeds) == ("other", "best", 3)
    assert found.mean == pytest.approx(-0.02)
    assert found.p == pytest.approx(expected.pvalue)
    between = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((between.low, between.high))
    unpaired = stats.ttest_ind(other, best).pvalue
    assert found.p < unpaired / 5  # the pairs are what shows the difference


def test_seeds_that_one_arm_lacks_do_not_count() -> None:
    arms = [
        arm("a", [0.5, 0.6, 0.7, 0.1], (0, 1, 2, 9)),
        arm("b", [0.8, 0.8, 0.9, 0.9], (2, 1, 0, 7)),
    ]
    (found,) = differences(arms)
    assert found.seeds == 3
    assert found.mean == pytest.approx(np.mean([0.5 - 0.9, 0.6 - 0.8, 0.7 - 0.8]))
    # two seeds say nothing
    assert differences([arm("a", [0.5, 0.6]), arm("b", [0.8, 0.9])]) == []


def test_p_is_corrected_for_all_rivals() -> None:
    rivals = [arm(f"r{i}", list(0.5 + RNG.normal(0, 0.02, 4))) for i in range(3)]
    found = differences([arm("best", [0.55, 0.56, 0.54, 0.57]), *rivals])
    assert holm([one.p for one in found]) == [one.corrected for one in found]
    lines = differences_csv(found).splitlines()
    assert lines[0] == "arm,reference,seeds,mean,low,high,p,p_holm"
    assert len(lines) == 4


def test_rounds_to_a_target() -> None:
    curves = np.array([[0.1, 0.5, 0.4], [0.1, 0.2, 0.3], [0.6, 0.1, 0.1]])
    assert rounds_to_target(curves, 0.5) == [2, None, 1]
    assert describe_rounds([2, None, 1]) == "1 to 2, in 2 of 3 seeds"
    assert describe_rounds([2, 2]) == "2"
    assert describe_rounds([None]) == "never"
    assert default_target(
        [arm("a", [0.9]), arm("b", [0.456]), arm("c", [0.1])]
    ) == pytest.approx(0.45)
    assert default_target([arm("a", [0.917])]) == pytest.approx(0.91)
