"""Private training: its gradients are autograd's, its sensitivity is what is claimed, and it learns."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.data.records import Records
from fedaux.models import Extractor, Prototype, build, dump, linear_head, load
from fedaux.models.optimizer import Optimizer
from fedaux.privacy.accounting import Spend
from fedaux.privacy.apart import RecordsMixError
from fedaux.privacy.clipping import GRID
from fedaux.privacy.dp_sgd import summed_steps, train_private
from fedaux.privacy.per_record import gradient
from fedaux.privacy.units import Units

RNG = np.random.default_rng(0)
ADAM = Optimizer(lr=0.1)


def network() -> Prototype:
    return build(PrototypeSpec.of("cnn", width=4, features=8, norm="group"), (1, 8, 8), 3, 0)


def rows_of(model: Prototype, count: int) -> np.ndarray:
    shape = (1, 8, 8) if list(model.features.parameters()) else (model.width,)
    return RNG.normal(size=(count, *shape)).astype(np.float32)


@pytest.mark.parametrize("model", [linear_head(64, 3), network()], ids=["head", "network"])
def test_a_records_gradient_is_autograds(model: Prototype) -> None:
    records = Records(rows_of(model, 7), RNG.integers(0, 3, 7))
    for position, label in enumerate(records.labels):
        model.zero_grad()
        F.cross_entropy(model(records.tensor()[[position]]), torch.tensor([label])).backward()
        naive = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]
        assert np.allclose(gradient(model, records, position, int(label)), naive.numpy(), atol=1e-5)


def test_a_label_that_is_no_class_has_no_gradient() -> None:
    model, records = linear_head(4, 3), Records(np.ones((3, 4), np.float32))
    assert gradient(model, records, 0, 1).any()
    for label in (3, -1, 2**40):
        assert not gradient(model, records, 0, label).any()


def summed(model: Prototype, records: Records, units: Units, clip: float) -> np.ndarray:
    return summed_steps([model], records, units.rows, clip)


def test_the_sum_is_of_clipped_means_over_units() -> None:
    """Of a person, the first records; those with an unknown label count as nothing."""
    model, x = linear_head(4, 3), RNG.normal(size=(9, 4)).astype(np.float32) * 3
    labels, person = np.array([0, 1, 2, -1, 0, 1, 2, 0, 7]), np.array([5, 2, 5, 5, 9, 5, 2, 2, 11])
    records = Records(x, labels, person=person)
    own = np.stack([gradient(model, records, i, int(label)) for i, label in enumerate(labels)])
    for units, groups in (
        (Units.of(records, "record", 3), [[i] for i in range(9)]),
        (Units.of(records, "person", 3), [[1, 6, 7], [0, 2, 3], [4], [8]]),
        (Units.of(records, "person", 2), [[1, 6], [0, 2], [4], [8]]),
    ):
        means = [own[group].mean(axis=0) for group in groups]
        naive = sum(row * min(1.0, 0.5 / max(np.linalg.norm(row), 1e-9)) for row in means)
        assert np.allclose(summed(model, records, units, 0.5) * 0.5 / GRID, naive, atol=1e-4)


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
    """Whatever its records are: exchanged by at most two steps of the grid's unit, added by at most one."""
    model = linear_head(4, 3)
    common = RNG.normal(size=(3, 4))

    def total(*rows: list[float]) -> np.ndarray:
        with np.errstate(all="ignore"):
            features = np.array([*common, *rows]).astype(np.float32)
        person = np.array([0, 1, 2, *[3] * len(rows)])
        records = Records(features, np.full(len(features), label), person=person)
        return summed(model, records, Units.of(records, "person", 2), 1.0).astype(float)

    assert np.linalg.norm(total(*[one] * many) - total(other)) <= 2 * GRID
    assert np.linalg.norm(total(*[one] * many) - total()) <= GRID


@pytest.mark.parametrize("part", [nn.BatchNorm1d(4), nn.Dropout(0.1)], ids=lambda one: type(one).__name__)
def test_layers_that_draw_or_normalise_over_the_batch_are_refused(part: nn.Module) -> None:
    records, model = blobs(5), Prototype(Extractor(part, width=4), 3)
    with pytest.raises(RecordsMixError, match=rf"features\.0: {type(part).__name__}.*head_only = true"):
        train_private(model, records, Units.of(records, "record", 1), Spend(1.0), size=5, clip=1.0, optimizer=ADAM)


def blobs(count: int = 600) -> Records:
    labels = RNG.integers(0, 3, count)
    return Records((RNG.normal(size=(count, 4)) + 2.0 * np.eye(4)[labels]).astype(np.float32), labels)


def accuracy(noise: float, seed: int = 1) -> float:
    records, model = blobs(), linear_head(4, 3)
    load(model, {"parameters": np.zeros(15, np.float32)})
    plan = Spend(noise, 0.5, 20)
    train_private(
        model, records, Units.of(records, "record", 1), plan, size=600, clip=1.0, optimizer=ADAM, unsafe_seed=seed
    )
    with torch.no_grad():
        return float((model(records.tensor()).argmax(dim=1).numpy() == records.labels).mean())


def test_it_learns_and_noise_costs_accuracy() -> None:
    assert accuracy(0.01) > 0.85
    assert accuracy(2000.0) < 0.7


def test_noise_comes_from_the_operating_system_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 20 expected records and huge noise, two trainings differ; with a seed they do not."""
    records, plan = blobs(40), Spend(5.0, 0.5, 2)

    def train(seed: int) -> np.ndarray:
        model = linear_head(4, 3)
        load(model, {"parameters": np.zeros(15, np.float32)})
        train_private(
            model, records, Units.of(records, "record", 1), plan, size=40, clip=1.0, optimizer=ADAM, unsafe_seed=seed
        )
        return dump(model)["parameters"]

    assert not np.array_equal(train(-1), train(-1))
    assert np.array_equal(train(3), train(3))
    drawn: list[float] = []
    real = __import__("fedaux.privacy.dp_sgd", fromlist=["add_noise"]).add_noise
    monkeypatch.setattr(
        "fedaux.privacy.dp_sgd.add_noise", lambda values, scale: drawn.append(scale) or real(values, scale)
    )
    train(-1)
    assert drawn == [5.0 * GRID, 5.0 * GRID]


def test_a_term_of_the_parameters_is_added_after_the_noise() -> None:
    """With hardly any noise and no clipping, steps are those of SGD with momentum, weight decay and the term."""
    records, start, lr, rho, decay, mu = blobs(50), np.linspace(-1, 1, 15, dtype=np.float32), 0.5, 0.9, 0.1, 0.3
    model = linear_head(4, 3)
    load(model, {"parameters": start})
    train_private(
        model,
        records,
        Units.of(records, "record", 1),
        Spend(1e-6, 1.0, 5),
        size=50,
        clip=100.0,
        optimizer=Optimizer("sgd", lr, rho, decay),
        term=lambda theta: mu * (theta - torch.tensor(start)),
        unsafe_seed=1,
    )
    theta = torch.tensor(start)
    velocity = torch.zeros_like(theta)
    for _ in range(5):
        point = theta.clone().requires_grad_()
        loss = F.cross_entropy(records.tensor() @ point[:12].view(3, 4).T + point[12:], torch.tensor(records.labels))
        (slope,) = torch.autograd.grad(loss, point)
        velocity = rho * velocity + slope + mu * (theta - torch.tensor(start)) + decay * theta
        theta = theta - lr * velocity
    assert np.allclose(dump(model)["parameters"], theta.numpy(), atol=1e-3)
