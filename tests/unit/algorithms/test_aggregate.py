"""T2 is a sum: against naive loops, and exactly associative and commutative whatever is added."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import softmax

from fedaux.algorithms import aggregate as combine
from fedaux.algorithms.aggregate import Ensemble, FixedSum, Tally
from fedaux.core.io import temporary_array
from fedaux.core.messages import Arrays

reals = st.floats(-256, 256, width=32)
update = st.tuples(
    hnp.arrays(np.float32, 5, elements=reals), hnp.arrays(np.float32, 2, elements=reals), st.integers(1, 10_000)
)


def weights_of(drawn: tuple[np.ndarray, np.ndarray, int]) -> tuple[Arrays, int]:
    parameters, buffers, records = drawn
    return {"parameters": parameters, "buffers": buffers, "counters": np.array([records, 3], np.int64)}, records


def tally(drawn: list[tuple[np.ndarray, np.ndarray, int]]) -> Tally:
    made = Tally()
    for one in drawn:
        made.add(*weights_of(one), second_moment=True)
    return made


def bits(made: Tally) -> list[bytes | int]:
    return [
        *(made.sums[key].steps.tobytes() for key in sorted(made.sums)),
        made.counters["counters"].tobytes(),
        made.records,
    ]


@settings(deadline=None)
@given(st.lists(update, min_size=1, max_size=6))
def test_average_is_weighted_by_records(drawn: list[tuple[np.ndarray, np.ndarray, int]]) -> None:
    found = tally(drawn).average()
    total = sum(records for *_, records in drawn)
    for k, name in enumerate(("parameters", "buffers")):
        naive = sum(float(records) * one[k].astype(np.float64) for one in drawn for records in [one[2]]) / total
        assert np.allclose(found[name], naive, rtol=1e-6, atol=1e-8)
        assert found[name].dtype == np.float32
    assert found["counters"].tolist() == [max(records for *_, records in drawn), 3]


@settings(deadline=None)
@given(st.lists(update, min_size=3, max_size=7), st.randoms(use_true_random=False))
def test_any_order_and_any_tree_give_the_same_bits(
    drawn: list[tuple[np.ndarray, np.ndarray, int]], random: Callable
) -> None:
    shuffled = drawn.copy()
    random.shuffle(shuffled)
    assert bits(tally(drawn)) == bits(tally(shuffled))
    cut, cut2 = sorted(random.sample(range(1, len(drawn)), 2))
    a, b, c = tally(drawn[:cut]), tally(drawn[cut:cut2]), tally(drawn[cut2:])
    b.merge(c)
    a.merge(b)  # a + (b + c)
    d, e, f = tally(drawn[:cut]), tally(drawn[cut:cut2]), tally(drawn[cut2:])
    e.merge(d)
    e.merge(f)  # (b + a) + c
    assert bits(a) == bits(e) == bits(tally(drawn))


teacher = st.tuples(
    hnp.arrays(np.float32, (6, 3), elements=st.floats(-50, 50, width=32)),
    hnp.arrays(np.float64, 6, elements=st.floats(1e-8, 1.0)),
)


def ensemble(teachers: list[tuple[np.ndarray, np.ndarray]]) -> Ensemble:
    made = Ensemble(6, 3)
    for logits, weights in teachers:
        made.add(logits, weights)
    return made


@settings(deadline=None)
@given(st.lists(teacher, min_size=1, max_size=5))
def test_soft_labels_are_equation_4(teachers: list[tuple[np.ndarray, np.ndarray]]) -> None:
    found = ensemble(teachers).soft_labels()
    for x in range(6):
        total = sum(weights[x] for _, weights in teachers)
        mean = sum(weights[x] * logits[x].astype(np.float64) for logits, weights in teachers) / total
        assert np.allclose(found[x], softmax(mean), atol=2e-3)  # at weights of 1e-8 a step is 1e-4 of the weight


@settings(deadline=None)
@given(st.lists(teacher, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_ensembles_merge_exactly(teachers: list[tuple[np.ndarray, np.ndarray]], random: Callable) -> None:
    whole = ensemble(teachers)
    cut = random.randrange(1, len(teachers))
    left, right = ensemble(teachers[:cut]), ensemble(teachers[cut:])
    right.merge(left)
    for name in ("logits", "mass", "squares"):
        assert np.array_equal(getattr(right, name).steps, getattr(whole, name).steps)


def test_uniform_and_sharp_ensembles_count_their_teachers() -> None:
    logits = np.zeros((6, 3), np.float32)
    assert ensemble([(logits, np.ones(6))] * 4).effective_teachers() == pytest.approx(4.0)
    assert ensemble([(logits, np.ones(6))] + [(logits, np.full(6, 1e-8))] * 3).effective_teachers() == pytest.approx(
        1.0
    )
    assert not Ensemble(6, 3).taught


def test_gaussian_over_client_weights() -> None:
    """FedBE: mean and variance weighted by |D_i|, per coordinate; buffers from the average."""
    rng = np.random.default_rng(0)
    drawn = [(rng.normal(size=5).astype(np.float32), rng.normal(size=2).astype(np.float32), n) for n in (10, 30, 60)]
    made = tally(drawn)
    shares = np.array([n for *_, n in drawn]) / 100
    stacked = np.stack([one[0] for one in drawn]).astype(np.float64)
    mean = (shares[:, None] * stacked).sum(axis=0)
    spread = np.sqrt((shares[:, None] * (stacked - mean) ** 2).sum(axis=0))
    draws = list(made.gaussian_draws(4000, np.random.default_rng(1)))
    sampled = np.stack([one["parameters"] for one in draws])
    assert np.allclose(sampled.mean(axis=0), mean, atol=0.08)
    assert np.allclose(sampled.std(axis=0), spread, rtol=0.05)
    assert all(np.array_equal(one["buffers"], made.average()["buffers"]) for one in draws[:3])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_bad_term_is_refused_and_leaves_the_sum_alone(bad: float) -> None:
    total = FixedSum((3,), combine.WEIGHT_BITS)
    total.add(np.ones(3))
    with pytest.raises(ValueError, match="refused"):
        total.add(np.array([1.0, bad, 1.0]))
    assert total.value().tolist() == [1.0, 1.0, 1.0]


def test_a_full_sum_raises_instead_of_wrapping() -> None:
    total = FixedSum((1,), combine.WEIGHT_BITS)
    for _ in range(17):
        total.add(np.array([3.9e9]))
    with pytest.raises(OverflowError):
        total.add(np.array([4.2e9]))
    assert total.value()[0] > 0


def test_a_large_ensemble_lives_on_disk_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    teachers = [(np.arange(18, dtype=np.float32).reshape(6, 3), np.linspace(0.1, 1, 6))]
    in_memory = ensemble(teachers)
    monkeypatch.setattr(combine, "temporary_array", lambda shape, dtype: temporary_array(shape, dtype, limit=10))
    mapped = ensemble(teachers)
    assert isinstance(mapped.logits.steps, np.memmap)
    assert np.array_equal(in_memory.soft_labels(), mapped.soft_labels())


@pytest.mark.parametrize("bad", [np.nan, 1e12])
def test_an_update_is_added_whole_or_not_at_all(bad: float) -> None:
    made = Tally()
    good = {"parameters": np.ones(3, np.float32), "buffers": np.ones(2, np.float32)}
    made.add(good, 5)
    with pytest.raises(ValueError, match="refused"):
        made.add({**good, "buffers": np.array([1, bad], np.float32)}, 5)
    assert made.records == 5
    assert all(np.array_equal(value, good[name]) for name, value in made.average().items())


def test_a_teacher_is_added_whole_or_not_at_all() -> None:
    made = ensemble([(np.ones((6, 3), np.float32), np.ones(6))])
    before = made.soft_labels()
    wild = np.zeros((6, 3), np.float32)
    wild[5, 2] = np.nan
    with pytest.raises(ValueError, match="refused"):
        made.add(wild, np.ones(6))
    assert np.array_equal(made.soft_labels(), before)
    assert made.mass.value().tolist() == [1.0] * 6
