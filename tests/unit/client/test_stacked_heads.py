"""Stacked heads arrive where `train_local` takes each of them by itself: weights, losses and steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedaux.client.local_training import Trained, gradient_term, train_local
from fedaux.client.stacked_heads import HeadTask, train_heads
from fedaux.core.rng import torch_stream
from fedaux.data.records import Records
from fedaux.methods.hooks import Hooks
from fedaux.models import HeadFeatures, flatten_state, linear_head, load_state
from fedaux.models.optimizer import Optimizer
from fedaux.models.registry import standardisation

WIDTH, CLASSES = 12, 5
HEAD = linear_head(WIDTH, CLASSES)
ADAM, SGD = Optimizer("adam", 1e-2, weight_decay=0.01), Optimizer("sgd", 0.02, momentum=0.9, weight_decay=0.01)


def pool(size: int = 400, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return Records(rng.normal(size=(size, WIDTH)).astype(np.float32), rng.integers(CLASSES, size=size))


def parts(records: Records, sizes: list[int]) -> list[Records]:
    order = np.random.default_rng(1).permutation(len(records))
    return [records.take(rows) for rows in np.split(order, np.cumsum(sizes))[:-1]]


def starts(count: int) -> list[np.ndarray]:
    """Not all alike, though in a round they are."""
    rng = np.random.default_rng(2)
    return [rng.normal(scale=0.1, size=CLASSES * (WIDTH + 1)).astype(np.float32) for _ in range(count)]


def stacked(clients: list[Records], epochs: int, optimizer: Optimizer, mu: float = 0.0, batch_size: int = 16):  # type: ignore[no-untyped-def]
    first = starts(len(clients))
    tasks = [
        HeadTask(first[i].copy(), records, torch_stream(i), gradient_term(Hooks(), mu, first[i], {}, {}))
        for i, records in enumerate(clients)
    ]
    return train_heads(tasks, epochs, batch_size, optimizer)


def serial(clients: list[Records], epochs: int, optimizer: Optimizer, mu: float = 0.0, batch_size: int = 16):  # type: ignore[no-untyped-def]
    results = []
    for i, (records, start) in enumerate(zip(clients, starts(len(clients)), strict=True)):
        load_state(HEAD, {"parameters": start})
        term = gradient_term(Hooks(), mu, start, {}, {})
        steps = {"epochs": epochs, "batch_size": batch_size, "optimizer": optimizer, "generator": torch_stream(i)}
        trained = train_local(HEAD, records, **steps, term=term)  # type: ignore[arg-type]
        results.append((flatten_state(HEAD)["parameters"], trained))
    return results


def assert_equal(ours: list[tuple[np.ndarray, Trained]], oracle: list[tuple[np.ndarray, Trained]]) -> None:
    for (theta, trained), (expected, alone) in zip(ours, oracle, strict=True):
        assert np.allclose(theta, expected, rtol=0, atol=1e-6, equal_nan=True)
        assert trained.steps == alone.steps
        assert trained.loss == pytest.approx(alone.loss, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("optimizer", [ADAM, SGD, Optimizer("sgd", 0.1)], ids=lambda o: f"{o.name}-{o.momentum:g}")
@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("epochs", [1, 3])
def test_all_clients_at_once_are_each_by_itself(optimizer: Optimizer, mu: float, epochs: int) -> None:
    """Sizes from one record to many; a last batch that is full, short, or of one row."""
    clients = parts(pool(), [33, 1, 16, 7, 200, 48, 17, 2])
    assert_equal(stacked(clients, epochs, optimizer, mu), serial(clients, epochs, optimizer, mu))


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    batch_size=st.integers(1, 40),
    epochs=st.integers(1, 3),
    optimizer=st.sampled_from([ADAM, SGD]),
)
def test_whatever_their_sizes(sizes: list[int], batch_size: int, epochs: int, optimizer: Optimizer) -> None:
    clients = parts(pool(), sizes)
    ours = stacked(clients, epochs, optimizer, batch_size=batch_size)
    assert_equal(ours, serial(clients, epochs, optimizer, batch_size=batch_size))


@pytest.mark.parametrize("random", [0, 7])
def test_heads_on_mapped_features_are_heads_on_the_mapped_rows(random: int) -> None:
    records, features = pool(), HeadFeatures(WIDTH, random)
    features.standardise(standardisation(3 * records.x + 1))
    mapped = replace(records, x=features(torch.from_numpy(records.x)).numpy())
    start = np.random.default_rng(3).normal(scale=0.1, size=CLASSES * (features.width + 1)).astype(np.float32)

    def heads(records: Records, *features: HeadFeatures):  # type: ignore[no-untyped-def]
        tasks = [HeadTask(start.copy(), part, torch_stream(i)) for i, part in enumerate(parts(records, [33, 1, 16]))]
        return train_heads(tasks, 2, 16, ADAM, *features)

    assert_equal(heads(records, features), heads(mapped))


def test_clients_need_not_share_a_pool() -> None:
    clients = [pool(size, seed) for seed, size in enumerate((20, 50, 9))]
    assert_equal(stacked(clients, 2, ADAM), serial(clients, 2, ADAM))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
def test_a_client_that_diverges_does_so_alone(value: float) -> None:
    """The rows that fill up its short batch are its own."""
    records = pool()
    clients = parts(records, [40, 23, 30])
    assert clients[1].rows is not None
    records.x[clients[1].rows[0]] = value
    ours = stacked(clients, 2, SGD)
    assert not np.isfinite(ours[1][1].loss)
    assert_equal([ours[0], ours[2]], [serial(clients, 2, SGD)[i] for i in (0, 2)])
