"""A round is a sum of contributions: against naive loops, and exactly associative and
commutative whatever is added.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import softmax

from fedaux.core.arrays import Arrays
from fedaux.core.io import temporary_array
from fedaux.methods import contribution as aggregate
from fedaux.methods.contribution import Contribution, Ensemble, FixedSum, ModelSum

reals = st.floats(-256, 256, width=32)
Update = tuple[np.ndarray, np.ndarray, int]
Teacher = tuple[np.ndarray, np.ndarray]
update = st.tuples(
    hnp.arrays(np.float32, 5, elements=reals),
    hnp.arrays(np.float32, 2, elements=reals),
    st.integers(1, 10_000),
)
teacher = st.tuples(
    hnp.arrays(np.float32, (6, 3), elements=st.floats(-50, 50, width=32)),
    hnp.arrays(np.float64, 6, elements=st.floats(1e-8, 1.0)),
)
client = st.tuples(st.sampled_from("ab"), update, st.none() | teacher)
Client = tuple[str, Update, Teacher | None]


def weights_of(drawn: Update) -> tuple[Arrays, int]:
    parameters, buffers, records = drawn
    return {
        "parameters": parameters,
        "buffers": buffers,
        "counters": np.array([records, 3], np.int64),
    }, records


def contribution(drawn: Client) -> Contribution:
    label, model, taught = drawn
    half = None if taught is None else Ensemble.of(*taught)
    return Contribution.of(label, *weights_of(model), half, second_moment=True)


def merged(parts: list[Contribution]) -> Contribution:
    total = Contribution()
    for part in parts:
        total.merge(part)
    return total


def tree(drawn: list[Client], random: Any) -> Contribution:
    """The clients in any order, split anywhere again and again, and merged on the way
    back.
    """
    if len(drawn) == 1:
        return contribution(drawn[0])
    shuffled = drawn.copy()
    random.shuffle(shuffled)
    cut = random.randrange(1, len(shuffled))
    left, right = tree(shuffled[:cut], random), tree(shuffled[cut:], random)
    left.merge(right)
    return left


def bits(total: Contribution) -> dict[str, Any]:
    """All that a contribution holds."""
    found: dict[str, Any] = {"clients": total.clients, "teachers": total.teachers}
    for label, model in total.models.items():
        found |= {
            f"{label}.{name}": each.steps.tobytes() for name, each in model.sums.items()
        }
        found |= {
            f"{label}.counters": model.counters["counters"].tobytes(),
            f"{label}.records": model.records,
        }
    if total.ensemble is not None:
        parts = ("logits", "mass", "squares")
        found |= {name: getattr(total.ensemble, name).steps.tobytes() for name in parts}
    return found


@settings(deadline=None)
@given(st.lists(client, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_any_order_and_any_tree_give_the_same_bits(
    drawn: list[Client], random: Any
) -> None:
    in_turn = merged([contribution(one) for one in drawn])
    assert bits(tree(drawn, random)) == bits(in_turn)
    assert bits(tree(drawn[::-1], random)) == bits(in_turn)


@settings(deadline=None)
@given(st.lists(client, min_size=1, max_size=6))
def test_a_round_is_what_naive_loops_make_of_it(drawn: list[Client]) -> None:
    """In double precision: averages weighted by records, and equation 4."""
    averages, ensemble = merged([contribution(one) for one in drawn]).finish()
    assert set(averages) == {label for label, *_ in drawn}
    for label, average in averages.items():
        models = [model for other, model, _ in drawn if other == label]
        total = sum(records for *_, records in models)
        for k, name in enumerate(("parameters", "buffers")):
            naive = (
                sum(
                    records * np.float64(each[k])
                    for each in models
                    for records in [each[2]]
                )
                / total
            )
            assert np.allclose(average[name], naive, rtol=1e-6, atol=1e-8)
            assert average[name].dtype == np.float32
        assert average["counters"].tolist() == [
            max(records for *_, records in models),
            3,
        ]
    teachers = [taught for *_, taught in drawn if taught is not None]
    assert (ensemble is None) == (not teachers)
    if ensemble is not None:
        found = ensemble.soft_labels()
        for x in range(6):
            mass = sum(weights[x] for _, weights in teachers)
            mean = (
                sum(
                    weights[x] * logits[x].astype(np.float64)
                    for logits, weights in teachers
                )
                / mass
            )
            # at weights of 1e-8 a step is 1e-4 of the weight
            assert np.allclose(found[x], softmax(mean), atol=2e-3)


def test_who_does_not_teach_is_in_the_average_only() -> None:
    weights, logits = (
        {"parameters": np.ones(2, np.float32)},
        np.ones((4, 3), np.float32),
    )
    total = Contribution.of("a", weights, 5)
    assert total.finish()[1] is None
    total.merge(
        Contribution.of(
            "a", {"parameters": np.zeros(2, np.float32)}, 5, Ensemble.of(logits)
        )
    )
    averages, ensemble = total.finish()
    assert (total.clients, total.teachers) == (2, 1)
    assert averages["a"]["parameters"].tolist() == [0.5, 0.5]
    assert ensemble is not None
    # without weights all teachers count alike
    assert ensemble.mass.value().tolist() == [1.0] * 4


def test_merging_leaves_the_other_as_it_was() -> None:
    half = Ensemble.of(np.ones((3, 2)))
    one, other = (
        Contribution.of("a", {"parameters": np.full(2, value)}, 1, half)
        for value in (1.0, 2.0)
    )
    before, total = bits_of_parameters(other), Contribution()
    total.merge(other)
    total.merge(one)
    total.merge(one)
    assert bits_of_parameters(other) == before


def bits_of_parameters(total: Contribution) -> bytes:
    return total.models["a"].sums["parameters"].steps.tobytes()


def ensemble(teachers: list[Teacher]) -> Ensemble:
    total = Ensemble.empty(6, 3)
    for logits, weights in teachers:
        total.merge(Ensemble.of(logits, weights))
    return total


def test_uniform_and_sharp_ensembles_count_their_teachers() -> None:
    logits = np.zeros((6, 3), np.float32)
    assert ensemble([(logits, np.ones(6))] * 4).effective_teachers() == pytest.approx(
        4.0
    )
    sharp = [(logits, np.ones(6))] + [(logits, np.full(6, 1e-8))] * 3
    assert ensemble(sharp).effective_teachers() == pytest.approx(1.0)


def test_a_half_that_crossed_the_wire_is_the_same_half() -> None:
    rng = np.random.default_rng(0)
    halves = [
        Ensemble.of(rng.normal(size=(6, 3)), rng.uniform(0.1, 1, 6)) for _ in range(3)
    ]
    here, there = Ensemble.empty(6, 3), Ensemble.empty(6, 3)
    for half in halves:
        here.merge(half)
        arrays = {name: array.copy() for name, array in half.to_arrays().items()}
        for array in arrays.values():
            array.flags.writeable = False  # as a message's arrays are
        there.merge(Ensemble.from_arrays(arrays))
    assert all(
        np.array_equal(array, there.to_arrays()[name])
        for name, array in here.to_arrays().items()
    )


@given(st.lists(client, min_size=1, max_size=6), st.integers(0, 6))
@settings(max_examples=30, deadline=None)
def test_sums_that_crossed_from_server_to_server_are_the_same_sums(
    drawn: list[Client], cut: int
) -> None:
    parts = [contribution(each) for each in drawn]
    halves = merged(parts[:cut]), merged(parts[cut:])
    arrays = [half.to_arrays() for half in halves]
    assert all(
        array.dtype == np.int64
        for rooms in arrays
        for shelf in rooms.values()
        for a in shelf.values()
        for array in a.values()
    )
    assert bits(merged([Contribution.from_arrays(rooms) for rooms in arrays])) == bits(
        merged(parts)
    )
    assert [bits(half) for half in halves] == [
        bits(merged(part)) for part in (parts[:cut], parts[cut:])
    ]


def test_gaussian_over_client_weights() -> None:
    """FedBE: mean and variance weighted by |D_i|, per coordinate; buffers from the
    average.
    """
    rng = np.random.default_rng(0)
    drawn = [
        (
            rng.normal(size=5).astype(np.float32),
            rng.normal(size=2).astype(np.float32),
            n,
        )
        for n in (10, 30, 60)
    ]
    total = ModelSum()
    for each in drawn:
        total.merge(ModelSum.of(*weights_of(each), second_moment=True))
    shares = np.array([n for *_, n in drawn]) / 100
    stacked = np.stack([each[0] for each in drawn]).astype(np.float64)
    mean = (shares[:, None] * stacked).sum(axis=0)
    spread = np.sqrt((shares[:, None] * (stacked - mean) ** 2).sum(axis=0))
    draws = list(total.gaussian_draws(4000, np.random.default_rng(1)))
    sampled = np.stack([each["parameters"] for each in draws])
    assert np.allclose(sampled.mean(axis=0), mean, atol=0.08)
    assert np.allclose(sampled.std(axis=0), spread, rtol=0.05)
    assert all(
        np.array_equal(each["buffers"], total.average()["buffers"])
        for each in draws[:3]
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_a_bad_term_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="refused"):
        FixedSum.of(np.array([1.0, bad, 1.0]), 1.0, aggregate.WEIGHT_BITS)


def test_a_full_sum_raises_instead_of_wrapping() -> None:
    total = FixedSum((1,), aggregate.WEIGHT_BITS)
    for _ in range(17):
        total.merge(FixedSum.of(np.array([3.9e9]), 1.0, aggregate.WEIGHT_BITS))
    with pytest.raises(OverflowError):
        total.merge(FixedSum.of(np.array([4.2e9]), 1.0, aggregate.WEIGHT_BITS))
    assert total.value()[0] > 0


@pytest.mark.parametrize("block", [1, 5, 2**20])
def test_blocks_do_not_matter(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values, weights = (
        np.arange(18, dtype=np.float32).reshape(6, 3),
        np.linspace(0.1, 1, 6),
    )
    monkeypatch.setattr(aggregate, "_BLOCK", block)
    total = FixedSum.of(values, weights, 40)
    total.merge(total)
    assert np.allclose(total.value(), 2 * values * weights[:, None], atol=1e-11)


def test_a_large_ensemble_lives_on_disk_and_gives_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    teachers = [(np.arange(18, dtype=np.float32).reshape(6, 3), np.linspace(0.1, 1, 6))]
    in_memory = ensemble(teachers)
    monkeypatch.setattr(
        aggregate,
        "temporary_array",
        lambda shape, dtype: temporary_array(shape, dtype, limit=10),
    )
    mapped = ensemble(teachers)
    assert isinstance(mapped.logits.steps, np.memmap)
    assert np.array_equal(in_memory.soft_labels(), mapped.soft_labels())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda weights, logits: weights["buffers"].__setitem__(1, np.nan),
        lambda weights, logits: weights["buffers"].__setitem__(1, 1e12),
        lambda weights, logits: logits.__setitem__((3, 2), np.nan),
        lambda weights, logits: logits.__setitem__((3, 2), 1e9),
    ],
    ids=["nan", "large", "nan logits", "large logits"],
)
def test_a_contribution_is_made_whole_or_not_at_all(
    spoil: Callable[[Arrays, np.ndarray], None],
) -> None:
    weights, logits = (
        {"parameters": np.ones(3, np.float32), "buffers": np.ones(2, np.float32)},
        np.ones((6, 3)),
    )
    Contribution.of("a", weights, 5, Ensemble.of(logits))
    spoil(weights, logits)
    with pytest.raises(ValueError, match="refused"):
        Contribution.of("a", weights, 5, Ensemble.of(logits))


def test_an_update_stands_for_records() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        Contribution.of("a", {"parameters": np.ones(3, np.float32)}, 0)
