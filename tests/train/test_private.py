"""Private training of a head: its gradients are autograd's, its sensitivity is what is claimed, and it learns."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fedaux.data.records import Records
from fedaux.privacy.accounting import Spend
from fedaux.privacy.bounded import GRID
from fedaux.prototypes import Extractor, Prototype, PrototypeSpec, build, dump, linear_head, load
from fedaux.train.private import clipped_sum, record_gradients, train_private

RNG = np.random.default_rng(0)


def network() -> Prototype:
    return build(PrototypeSpec.of("cnn", width=4, features=8, norm="group"), (1, 8, 8), 3, 0)


@pytest.mark.parametrize("model", [linear_head(64, 3), network()], ids=["head", "network"])
def test_record_gradients_are_autograds(model: Prototype) -> None:
    shape = (7, 64) if isinstance(model.features, Extractor) and not list(model.features.parameters()) else (7, 1, 8, 8)
    x, labels = torch.from_numpy(RNG.normal(size=shape).astype(np.float32)), torch.from_numpy(RNG.integers(0, 3, 7))
    found = record_gradients(model, x, labels)
    for row, one, label in zip(found, x, labels, strict=True):
        model.zero_grad()
        F.cross_entropy(model(one[None]), label[None]).backward()
        naive = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])  # type: ignore[union-attr]
        assert np.allclose(row, naive.numpy(), atol=1e-5)


def test_a_label_that_is_no_class_has_no_gradient() -> None:
    model, x = linear_head(4, 3), torch.ones(3, 4)
    found = record_gradients(model, x, torch.tensor([1, 3, -1]))
    assert found[0].any()
    assert not found[1:].any()


def test_the_sum_is_of_clipped_gradients() -> None:
    gradients = RNG.normal(size=(20, 6)) * RNG.uniform(0.01, 10, size=(20, 1))
    naive = sum(row * min(1.0, 0.5 / np.linalg.norm(row)) for row in gradients)
    found = clipped_sum(iter([gradients[:7], gradients[7:]]), 0.5, 6)
    assert np.allclose(found * 0.5 / GRID, naive, atol=1e-4)


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


@settings(max_examples=300, deadline=None)
@given(st.lists(numbers, min_size=4, max_size=4), st.lists(numbers, min_size=4, max_size=4), st.integers(0, 2))
def test_no_record_moves_the_sum_further_than_claimed(one: list[float], other: list[float], label: int) -> None:
    """Whatever the record is: exchanged by at most two steps of the grid's unit, added by at most one."""
    model = linear_head(4, 3)
    common = RNG.normal(size=(3, 4))

    def total(*rows: list[float]) -> np.ndarray:
        with np.errstate(all="ignore"):
            features = torch.from_numpy(np.array([*common, *rows]).astype(np.float32))
            gradients = record_gradients(model, features, torch.full((len(features),), label))
            return clipped_sum(iter([gradients]), 1.0, 15).astype(float)

    assert np.linalg.norm(total(one) - total(other)) <= 2 * GRID
    assert np.linalg.norm(total(one) - total()) <= GRID


def blobs(count: int = 600) -> Records:
    labels = RNG.integers(0, 3, count)
    return Records((RNG.normal(size=(count, 4)) + 2.0 * np.eye(4)[labels]).astype(np.float32), labels)


def accuracy(noise: float, seed: int = 1) -> float:
    records, model = blobs(), linear_head(4, 3)
    load(model, {"parameters": np.zeros(15, np.float32)})
    plan = Spend(noise, 0.5, 20)
    train_private(model, records, plan, size=600, lr=0.1, mu=0.0, clip=1.0, unsafe_seed=seed)
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
        train_private(model, records, plan, size=40, lr=0.1, mu=0.0, clip=1.0, unsafe_seed=seed)
        return dump(model)["parameters"]

    assert not np.array_equal(train(-1), train(-1))
    assert np.array_equal(train(3), train(3))
    drawn: list[float] = []
    real = __import__("fedaux.train.private", fromlist=["add_noise"]).add_noise
    monkeypatch.setattr(
        "fedaux.train.private.add_noise", lambda values, scale: drawn.append(scale) or real(values, scale)
    )
    train(-1)
    assert drawn == [5.0 * GRID, 5.0 * GRID]


def test_the_proximal_term_pulls_towards_the_start() -> None:
    records, ends = blobs(), []
    for mu in (0.0, 100.0):
        model = linear_head(4, 3)
        load(model, {"parameters": np.zeros(15, np.float32)})
        train_private(model, records, Spend(0.01, 1.0, 20), size=600, lr=0.1, mu=mu, clip=1.0, unsafe_seed=1)
        ends.append(float(np.linalg.norm(dump(model)["parameters"])))
    assert ends[1] < 0.5 * ends[0]
