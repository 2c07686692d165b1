"""Training at a client, given a task: what the order may choose, and what only the
client's own settings may.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaux.client.handlers import open_task
from fedaux.client.kept_state import LocalResult
from fedaux.client.loading import load_task
from fedaux.client.site import Site
from fedaux.client.training import (
    ClientTask,
    TrainingSummary,
    gradient_term,
    train_local,
    train_plainly,
    train_with_privacy,
    weighted_loss,
)
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.accounts import Account
from fedaux.core.failures import OrderError
from fedaux.data.partition import batches
from fedaux.data.records import Records
from fedaux.methods.hooks import Hooks
from fedaux.models import Prototype, build, flatten_state, to_half
from fedaux.models.inference import predict
from fedaux.models.optimizer import Optimizer
from fedaux.privacy.accounting import BudgetError
from fedaux.server.preparation import initial_state
from fedaux.server.server import make_server

CONFIG = Config(
    method="fedavg",
    rounds=1,
    prototypes=(PrototypeSpec.of("mlp", features=8, hidden=8),),
    data=DataConfig(clients=3, alpha=1.0),
    aux=AuxConfig(limit=100),
    privacy=PrivacyConfig(epsilon_total=4.0, private_training=True, sample_rate=1.0),
)


@pytest.fixture
def task(tmp_path: Path) -> ClientTask:
    server = make_server(CONFIG, cache=tmp_path / "cache")
    order = server.orders.train(initial_state(server), "client-001")
    return open_task(order, Site(CONFIG, tmp_path / "clients", ("client-001",)))


def private(task: ClientTask, **change: Any) -> LocalResult:
    changed = replace(task, order=replace(task.order, **change))
    return train_with_privacy(changed, lambda: load_task(changed.order, changed.site))


def test_plain_training_repeats_to_the_bit_and_costs_nothing(task: ClientTask) -> None:
    one, two = (
        train_plainly(task, lambda: load_task(task.order, task.site)) for _ in range(2)
    )
    assert np.array_equal(one.weights["parameters"], two.weights["parameters"])
    assert not np.array_equal(one.weights["parameters"], task.start)
    assert one.mechanism.noise_multiplier == 0
    assert task.store.account().entries == 0


def test_private_training_is_paid_for_once_and_for_as_many_rounds_as_were_planned(
    task: ClientTask,
) -> None:
    one, two = (private(task) for _ in range(2))
    assert np.array_equal(one.weights["parameters"], two.weights["parameters"])
    assert one.mechanism.noise_multiplier > 0
    assert task.store.account().entries == 1
    with pytest.raises(BudgetError, match="planned for 1 rounds, and they are used up"):
        private(task, round=2)


@pytest.mark.parametrize(
    "change", [{"epochs": 2}, {"batch_size": 7}, {"h0": "f00d"}], ids=str
)
def test_other_training_than_was_planned_for_is_refused_before_anything_is_spent(
    task: ClientTask, change: dict[str, Any]
) -> None:
    with pytest.raises(
        OrderError, match="other training than this client's budget was planned for"
    ):
        private(task, **change)
    assert task.store.account().entries == 0


SCAFFOLD = Config(
    method="scaffold",
    prototypes=(PrototypeSpec.of("mlp", features=8, hidden=8),),
    data=DataConfig(clients=3, alpha=1.0),
    aux=AuxConfig(limit=100),
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(optimizer="sgd"),
)


@pytest.fixture
def scaffold_task(tmp_path: Path) -> ClientTask:
    server = make_server(SCAFFOLD, cache=tmp_path / "cache")
    order = server.orders.train(initial_state(server), "client-001")
    return open_task(order, Site(SCAFFOLD, tmp_path / "clients", ("client-001",)))


def test_an_update_is_what_the_method_makes_of_the_trained_model(
    scaffold_task: ClientTask,
) -> None:
    model, records = load_task(scaffold_task.order, scaffold_task.site)
    weights = flatten_state(model)
    weights["parameters"] += 1
    update = scaffold_task.update(
        LocalResult(weights, len(records), TrainingSummary(0.5, 4), 1.5), lambda: model
    )
    assert (update.client, update.round, update.records) == (
        "client-001",
        1,
        len(records),
    )
    assert (update.loss, update.seconds, update.noise, update.steps) == (
        0.5,
        1.5,
        0.0,
        0,
    )
    assert np.array_equal(update.weights["parameters"], scaffold_task.start + 1)
    # (start − trained) / (K·lr)
    assert np.allclose(update.extra["c"], -1 / (4 * scaffold_task.order.lr))
    # kept for the next round
    assert np.array_equal(scaffold_task._states.load(1)["c"], update.extra["c"])
    assert Account.from_json(update.account) == scaffold_task.store.account()


def test_half_precision_is_answered_in_half_precision(
    scaffold_task: ClientTask,
) -> None:
    model, records = load_task(scaffold_task.order, scaffold_task.site)
    order = replace(scaffold_task.order, weights=to_half(scaffold_task.order.weights))
    half = replace(scaffold_task, order=order)
    update = half.update(
        LocalResult(flatten_state(model), len(records), TrainingSummary(0.5, 4), 1.5),
        lambda: model,
    )
    assert half.start.dtype == np.float32
    assert update.weights["parameters"].dtype == np.float16


ADAM = Optimizer(lr=1e-2)


def blobs(size: int = 60) -> Records:
    rng = np.random.default_rng(0)
    y = np.arange(size) % 3
    return Records(
        (rng.normal(size=(size, 4)) + 2 * np.eye(4)[y]).astype(np.float32),
        y.astype(np.int64),
    )


def mlp(norm: str = "batch") -> Prototype:
    return build(
        PrototypeSpec.of("mlp", hidden=16, features=8, norm=norm), (4,), 3, seed=0
    )


def train(
    model: Prototype,
    records: Records,
    mu: float = 0.0,
    epochs: int = 5,
    optimizer: Optimizer = ADAM,
) -> TrainingSummary:
    generator = torch.Generator().manual_seed(1)
    term = gradient_term(Hooks(), mu, flatten_state(model)["parameters"], {}, {})
    return train_local(
        model,
        records,
        epochs=epochs,
        batch_size=16,
        optimizer=optimizer,
        generator=generator,
        term=term,
    )


def test_training_learns_and_repeats_exactly() -> None:
    first, again = mlp(), mlp()
    losses = [train(network, blobs()).loss for network in (first, again)]
    assert losses[0] == losses[1] < 0.7
    assert all(
        np.array_equal(a, b)
        for a, b in zip(
            flatten_state(first).values(), flatten_state(again).values(), strict=True
        )
    )
    assert (predict(first, blobs()).argmax(axis=1) == blobs().labels).sum() > 50


def test_a_long_gradient_is_scaled_down_and_a_short_one_is_not() -> None:
    records = blobs(16)
    rate = 0.1
    moves: dict[float, float] = {}
    for bound in (0.0, 1e-3, 1e3):
        network = mlp()
        before = flatten_state(network)["parameters"].copy()
        train_local(
            network,
            records,
            epochs=1,
            batch_size=16,
            optimizer=Optimizer("sgd", lr=rate),
            generator=torch.Generator().manual_seed(1),
            max_grad_norm=bound,
        )
        after = flatten_state(network)["parameters"]
        moves[bound] = float(np.linalg.norm(after - before))
    assert moves[1e-3] == pytest.approx(rate * 1e-3, rel=1e-3)
    assert moves[1e3] == moves[0.0] > 2 * moves[1e-3]


def test_a_weight_is_so_many_copies_of_a_record() -> None:
    """Copies of rows of class 1 and 2 in one step, at the same sum of losses."""
    records = blobs(18)
    weights = np.array([1, 2, 3], np.float32)
    copied = records.take(np.repeat(np.arange(18), weights[records.labels].astype(int)))
    states = []
    for rows, rate, given in (
        (records, 0.1, weights),
        (copied, 0.1 * len(copied) / 18, None),
        (records, 0.1, None),
    ):
        network = mlp("group")
        train_local(
            network,
            rows,
            epochs=1,
            batch_size=64,
            optimizer=Optimizer("sgd", lr=rate),
            generator=torch.Generator().manual_seed(1),
            class_weights=given,
        )
        states.append(flatten_state(network)["parameters"])
    np.testing.assert_allclose(states[0], states[1], atol=1e-6)
    assert np.abs(states[0] - states[2]).max() > 1e-4


def test_one_class_at_a_client_keeps_its_weight() -> None:
    """As the mean by weights of PyTorch does not."""
    logits, labels = torch.randn(5, 3), torch.full((5,), 2)
    heavy = weighted_loss(logits, labels, torch.tensor([1.0, 1.0, 3.0]))
    assert heavy.item() == pytest.approx(3 * weighted_loss(logits, labels, None).item())


def test_frozen_batch_norm_keeps_its_statistics_and_steps_as_in_eval_mode() -> None:
    records = blobs(16)
    trained, oracle = mlp(), mlp()
    for network in (trained, oracle):
        train(network, blobs())  # statistics that differ from those of a batch
    before = flatten_state(trained)["buffers"].copy()
    generator = torch.Generator().manual_seed(1)
    sgd = Optimizer("sgd", lr=0.1)
    common = {"epochs": 1, "batch_size": 16, "optimizer": sgd, "generator": generator}
    train_local(trained, records, **common, freeze_batch_norm=True)
    oracle.eval()
    loss = torch.nn.functional.cross_entropy(
        oracle(records.tensor()), torch.from_numpy(records.labels)
    )
    loss.backward()
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter -= 0.1 * parameter.grad
    assert np.array_equal(flatten_state(trained)["buffers"], before)
    np.testing.assert_allclose(
        flatten_state(trained)["parameters"],
        flatten_state(oracle)["parameters"],
        atol=1e-6,
    )
    train_local(trained, records, **common)
    assert not np.array_equal(flatten_state(trained)["buffers"], before)


def test_fedprox_is_the_gradient_of_its_penalty() -> None:
    """Steps on cross-entropy + μ/2 ‖θ − θ_t‖², with autograd's gradient of the
    whole.
    """
    ours, naive, records, mu = mlp(), mlp(), blobs(), 0.3
    sgd = Optimizer("sgd", lr=0.1)
    assert train(ours, records, mu, epochs=2, optimizer=sgd).steps == 8
    start = [p.detach().clone() for p in naive.parameters()]
    labels, generator = (
        torch.from_numpy(records.labels),
        torch.Generator().manual_seed(1),
    )
    naive.train()
    for _ in range(2):
        for rows in batches(len(records), 16, generator):
            pull = sum(
                (p - s).square().sum()
                for p, s in zip(naive.parameters(), start, strict=True)
            )
            loss = (
                torch.nn.functional.cross_entropy(
                    naive(records.batch(rows)), labels[rows]
                )
                + mu / 2 * pull
            )
            grads = torch.autograd.grad(loss, list(naive.parameters()))
            with torch.no_grad():
                for p, g in zip(naive.parameters(), grads, strict=True):
                    p -= 0.1 * g
    assert np.allclose(
        flatten_state(ours)["parameters"], flatten_state(naive)["parameters"], atol=1e-6
    )
