"""Private training: its gradients are autograd's, its sensitivity is what is claimed,
and it learns.
"""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import (
    Extractor,
    Prototype,
    build,
    flatten_state,
    linear_head,
    load_state,
)
from fedaux.models.optimizer import Optimizer
from fedaux.privacy import mechanism
from fedaux.privacy.accounting import Mechanism
from fedaux.privacy.dp_sgd import (
    clipped_unit_gradient,
    sum_clipped_gradients,
    system_uniform,
    train_private,
)
from fedaux.privacy.mechanism import GRID
from fedaux.privacy.module_validation import UnsupportedModuleError, per_record_safe
from fedaux.privacy.per_record import ImpureModuleError, gradient, replicate
from fedaux.privacy.units import Units
from helpers.odd_rows import COMPANY, EXAMPLES, ROWS

pytestmark = pytest.mark.usefixtures("workers_everywhere")

ADAM = Optimizer(lr=0.1)
RNG = np.random.default_rng(0)


def network() -> Prototype:
    return build(
        PrototypeSpec.of("cnn", width=4, features=8, norm="group"), (1, 8, 8), 3, 0
    )


def sums_received(
    model: Prototype, records: Records, units: Units, clip: float
) -> np.ndarray:
    return sum_clipped_gradients([model], records, units.rows, clip)


def train(
    model: Prototype,
    records: Records,
    mechanism: Mechanism,
    optimizer: Optimizer = ADAM,
    **more: Any,
) -> None:
    """All records, each a unit."""
    options = {"size": len(records), "clip": 1.0, **more}
    train_private(
        model,
        records,
        Units.of(records, "record", 1),
        mechanism,
        optimizer=optimizer,
        **options,
    )


def test_the_sum_is_of_clipped_means_over_units() -> None:
    """Of a person, the first records; those with an unknown label count as nothing."""
    model, x = linear_head(4, 3), RNG.normal(size=(9, 4)).astype(np.float32) * 3
    labels, person = (
        np.array([0, 1, 2, -1, 0, 1, 2, 0, 7]),
        np.array([5, 2, 5, 5, 9, 5, 2, 2, 11]),
    )
    records = Records(x, labels, person=person)
    own = np.stack(
        [gradient(model, records, i, int(label)) for i, label in enumerate(labels)]
    )
    for units, groups in (
        (Units.of(records, "record", 3), [[i] for i in range(9)]),
        (Units.of(records, "person", 3), [[1, 6, 7], [0, 2, 3], [4], [8]]),
        (Units.of(records, "person", 2), [[1, 6], [0, 2], [4], [8]]),
    ):
        means = [own[group].mean(axis=0) for group in groups]
        naive = sum(
            row * min(1.0, 0.5 / max(np.linalg.norm(row), 1e-9)) for row in means
        )
        assert np.allclose(
            sums_received(model, records, units, 0.5) * 0.5 / GRID, naive, atol=1e-4
        )


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(numbers, min_size=4, max_size=4),
    st.lists(numbers, min_size=4, max_size=4),
    st.integers(-1, 3),
    st.integers(1, 3),
)
def test_no_unit_moves_the_sum_further_than_claimed(
    one: list[float], other: list[float], label: int, many: int
) -> None:
    """Whatever its records are: exchanged by at most two steps of the grid's unit,
    added by at most one.
    """
    model = linear_head(4, 3)
    common = RNG.normal(size=(3, 4))

    def total(*rows: list[float]) -> np.ndarray:
        with np.errstate(all="ignore"):
            features = np.array([*common, *rows]).astype(np.float32)
        person = np.array([0, 1, 2, *[3] * len(rows)])
        records = Records(features, np.full(len(features), label), person=person)
        return sums_received(
            model, records, Units.of(records, "person", 2), 1.0
        ).astype(float)

    assert np.linalg.norm(total(*[one] * many) - total(other)) <= 2 * GRID
    assert np.linalg.norm(total(*[one] * many) - total()) <= GRID


@pytest.mark.parametrize(
    "part", [nn.BatchNorm1d(4), nn.Dropout(0.1)], ids=lambda one: type(one).__name__
)
def test_layers_that_draw_or_normalise_over_the_batch_are_refused(
    part: nn.Module,
) -> None:
    records, model = blobs(5), Prototype(Extractor(part, width=4), 3)
    with pytest.raises(
        UnsupportedModuleError,
        match=rf"features\.0: {type(part).__name__}.*head_only = true",
    ):
        train(model, records, Mechanism(1.0))


def test_weights_elsewhere_are_refused() -> None:
    records, model = blobs(5), linear_head(4, 3).double()
    with pytest.raises(
        UnsupportedModuleError, match=r"in float32 \(head\.weight is not\)"
    ):
        train(model, records, Mechanism(1.0))


def test_a_sum_over_nobody_is_nothing() -> None:
    total = sum_clipped_gradients([linear_head(4, 3)], blobs(5), [], 1.0)
    assert total.dtype == np.int64
    assert total.tolist() == [0] * 15


@pytest.mark.parametrize("step", [1, 3])
def test_every_sum_of_gradients_is_verified(step: int) -> None:
    """A network that begins to count at some step: what came before is trained, and
    then no more.
    """

    @per_record_safe
    class Counts(nn.Module):
        width, calls = 4, 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            # five records a step, the first of them three times
            return x + (self.calls > 7 * step - 3)

    records, model, steps = blobs(5), Prototype(Counts(), 3), []
    counted = {"term": lambda theta: steps.append(theta) or torch.zeros_like(theta)}
    with pytest.raises(
        ImpureModuleError, match="Counts returned something else for the same record"
    ):
        train(model, records, Mechanism(1e-6, 1.0, 5), **counted)
    assert len(steps) == step - 1


def blobs(count: int = 200) -> Records:
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 3, count)
    return Records(
        (rng.normal(size=(count, 4)) + 3.0 * np.eye(4)[labels]).astype(np.float32),
        labels,
    )


def accuracy(noise: float, seed: int = 1) -> float:
    records, model = blobs(), linear_head(4, 3)
    load_state(model, {"parameters": np.zeros(15, np.float32)})
    train(model, records, Mechanism(noise, 0.5, 20), unsafe_seed=seed)
    with torch.no_grad():
        return float(
            (model(records.tensor()).argmax(dim=1).numpy() == records.labels).mean()
        )


def test_it_learns_and_noise_costs_accuracy() -> None:
    assert accuracy(0.01) > 0.8
    assert accuracy(2000.0) < 0.7


def test_noise_comes_from_the_operating_system_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 20 expected records and huge noise, two trainings differ; with a seed they
    do not.
    """
    records, plan = blobs(40), Mechanism(5.0, 0.5, 2)

    def trained(seed: int) -> np.ndarray:
        model = linear_head(4, 3)
        load_state(model, {"parameters": np.zeros(15, np.float32)})
        train(model, records, plan, unsafe_seed=seed)
        return flatten_state(model)["parameters"]

    assert not np.array_equal(trained(-1), trained(-1))
    assert np.array_equal(trained(3), trained(3))
    drawn: list[float] = []
    real = mechanism.add_noise
    monkeypatch.setattr(
        mechanism,
        "add_noise",
        lambda values, scale: drawn.append(scale) or real(values, scale),
    )
    trained(-1)
    assert drawn == [5.0 * GRID, 5.0 * GRID]


def test_a_term_of_the_parameters_is_added_after_the_noise() -> None:
    """With hardly any noise and no clipping, steps are those of SGD with momentum,
    weight decay and the term.
    """
    records, start, lr, rho, decay, mu = (
        blobs(50),
        np.linspace(-1, 1, 15, dtype=np.float32),
        0.5,
        0.9,
        0.1,
        0.3,
    )
    model = linear_head(4, 3)
    load_state(model, {"parameters": start})
    descent = Optimizer("sgd", lr, rho, decay)
    proximal = {"term": lambda theta: mu * (theta - torch.tensor(start))}
    train(
        model,
        records,
        Mechanism(1e-6, 1.0, 5),
        descent,
        clip=100.0,
        unsafe_seed=1,
        **proximal,
    )
    theta = torch.tensor(start)
    velocity = torch.zeros_like(theta)
    for _ in range(5):
        point = theta.clone().requires_grad_()
        loss = F.cross_entropy(
            records.tensor() @ point[:12].view(3, 4).T + point[12:],
            torch.tensor(records.labels),
        )
        (slope,) = torch.autograd.grad(loss, point)
        velocity = (
            rho * velocity + slope + mu * (theta - torch.tensor(start)) + decay * theta
        )
        theta = theta - lr * velocity
    assert np.allclose(flatten_state(model)["parameters"], theta.numpy(), atol=1e-3)


def head_and_network() -> list[tuple[Prototype, np.ndarray]]:
    network = build(
        PrototypeSpec.of("cnn", width=4, features=8, norm="group"), ROWS.shape[1:], 3, 0
    )
    with np.errstate(all="ignore"):
        return [(linear_head(192, 3), ROWS.reshape(len(ROWS), -1)), (network, ROWS)]


@pytest.mark.parametrize(("model", "pool"), head_and_network(), ids=["head", "network"])
def test_a_sum_of_gradients_moves_by_a_records_own_integers(
    model: Prototype, pool: np.ndarray
) -> None:
    """To the last one: added, removed or replaced, wherever it stands, whoever is
    beside it, with 1 or 2 threads.
    """
    labels = np.arange(len(pool)) % 5 - 1  # some are none of the classes
    own = [
        clipped_unit_gradient(model, Records(pool), labels, np.array([i]), 0.5)
        for i in range(len(pool))
    ]
    assert any(steps.any() for steps in own)

    @EXAMPLES
    @given(st.integers(0, len(pool) - 1), COMPANY, COMPANY, st.sampled_from([1, 2]))
    def check(record: int, before: list[int], after: list[int], threads: int) -> None:
        torch.set_num_threads(threads)
        sums = []
        for middle in ([record], []):
            positions = np.array([*before, *middle, *after], np.int64) % len(pool)
            records = Records(pool[positions], labels[positions])
            workers = replicate(model, lambda one: None, len(records))
            sums.append(
                sum_clipped_gradients(
                    workers, records, Units.of(records, "record", 1).rows, 0.5
                )
            )
        assert np.array_equal(sums[0] - sums[1], own[record])

    check()


@EXAMPLES
@given(COMPANY, COMPANY, st.sampled_from([1, 2]), st.integers(1, 4))
def test_a_sum_of_gradients_moves_by_a_persons_own_integers(
    own: list[int], others: list[int], threads: int, cap: int
) -> None:
    model, pool = head_and_network()[0]
    torch.set_num_threads(threads)
    labels = np.arange(len(pool)) % 4 - 1
    positions = np.array([*others, *own], np.int64) % len(pool)
    person = np.array([*(i % 3 for i in range(len(others))), *[7] * len(own)], np.int64)
    shuffled = np.random.default_rng(len(own)).permutation(len(positions))
    mixed = Records(
        pool[positions[shuffled]], labels[positions[shuffled]], person=person[shuffled]
    )
    without, alone = (
        mixed.take(np.flatnonzero(mixed.persons == 7 if his else mixed.persons != 7))
        for his in (0, 1)
    )
    sums = [
        sum_clipped_gradients([model], one, Units.of(one, "person", cap).rows, 0.5)
        for one in (mixed, without, alone)
    ]
    assert np.array_equal(sums[0] - sums[1], sums[2])


def test_who_is_sampled_is_drawn_from_the_operating_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each number from eight bytes of its own, in [0, 1); uniform to six deviations."""
    drawn = system_uniform(200_000)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 6 * (1 / 12 / 200_000) ** 0.5
    assert abs((drawn < 0.1).mean() - 0.1) < 6 * (0.09 / 200_000) ** 0.5
    monkeypatch.setattr("os.urandom", lambda count: b"\xff" * count)
    assert system_uniform(2).tolist() == [1 - 2**-53] * 2
