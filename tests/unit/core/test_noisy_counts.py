"""Counts of the same records by several divisions: one total, and quantiles."""

from __future__ import annotations

import numpy as np
import pytest

from fedaux.core.noisy_counts import NoisyCount, consistent, quantiles

EDGES = (20.0, 40.0, 50.0, 55.0, 60.0, 70.0, 90.0)
NOISE = {"classes": 10.0, "ages": 20.0}
DRAWS = 2_000


def drawn(rng: np.random.Generator) -> dict[str, list[float]]:
    """Noisy counts of 700 records."""
    return {
        "classes": [*rng.normal([400, 300, 0], NOISE["classes"])],
        "ages": [*rng.normal([0, 100, 100, 150, 150, 100, 90, 10], NOISE["ages"])],
    }


def test_all_divisions_add_up_to_one_total() -> None:
    records, moved = consistent(drawn(np.random.default_rng(0)), NOISE)
    for counts in moved.values():
        assert sum(count.value for count in counts) == pytest.approx(records.value)


def test_the_stated_noise_is_that_of_the_counts() -> None:
    rng = np.random.default_rng(1)
    results = [consistent(drawn(rng), NOISE) for _ in range(DRAWS)]
    totals = [records.value for records, _ in results]
    assert np.mean(totals) == pytest.approx(700, abs=1.5)
    assert np.std(totals) == pytest.approx(results[0][0].noise, rel=0.06)
    # less than that of the classes alone, whose sum has √3 · 10
    assert results[0][0].noise < 17
    for name, place, exact in (("classes", 2, 0), ("ages", 3, 150)):
        values = [moved[name][place].value for _, moved in results]
        stated = results[0][1][name][place].noise
        assert np.mean(values) == pytest.approx(exact, abs=2)
        assert np.std(values) == pytest.approx(stated, rel=0.06)
        assert stated < NOISE[name]


def test_intervals_are_cut_at_zero() -> None:
    count = NoisyCount(-5.0, 10.0)
    assert count.low == 0
    assert count.high == pytest.approx(14.6, abs=0.01)
    assert (count + NoisyCount(5.0, 0.0)).value == 0


def exact(*counts: float, noise: float = 1e-6) -> list[NoisyCount]:
    return [NoisyCount(count, noise) for count in counts]


def test_quantiles_of_exact_counts_lie_between_their_edges() -> None:
    found = quantiles(EDGES, exact(0, 100, 0, 100, 0, 0, 200, 0), (0.125, 0.4, 0.75))
    values = [estimate.value for estimate in found if estimate is not None]
    assert values == pytest.approx([30, 53, 80])
    intervals = [(one.low, one.high) for one in found if one is not None]
    assert intervals == [(20, 40), (50, 55), (70, 90)]


def test_a_quantile_that_noise_hides_is_left_out() -> None:
    counts = exact(0, 10, 10, 10, 10, 10, 10, 0, noise=30.0)
    assert quantiles(EDGES, counts, (0.1, 0.5)) == [None, None]
    assert quantiles(EDGES, exact(*[0.0] * 8), (0.5,)) == [None]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_intervals_of_quantiles_contain_the_truth(share: float) -> None:
    rng = np.random.default_rng(2)
    inside = 0
    known = 0
    for _ in range(300):
        ages = rng.gamma(20, 2.7, 900)
        counts, _ = np.histogram(ages, [-np.inf, *EDGES, np.inf])
        noisy = [NoisyCount(value, 15.0) for value in rng.normal(counts, 15.0)]
        (found,) = quantiles(EDGES, noisy, (share,))
        if found is None:
            continue
        known += 1
        inside += found.low <= np.quantile(ages, share) <= found.high
    assert known > 200
    assert inside / known >= 0.95
