"""Training at a client, given a task: what the order may choose, and what only the client's own settings may."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.client.handlers import open_task
from fedaux.client.loading import load_task
from fedaux.client.site import Site
from fedaux.client.stored_results import LocalResult
from fedaux.client.task import ClientTask
from fedaux.client.training import labelled, ordered_optimizer, train_plainly, train_with_privacy
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, PrivacyConfig
from fedaux.core.messages import OrderError
from fedaux.data.records import Records
from fedaux.models.optimizer import Optimizer
from fedaux.privacy.accounting import BudgetError
from fedaux.server.server import make_server
from fedaux.server.start import initial_state
from helpers.samples import train_order

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


def test_a_record_without_a_declared_label_does_not_train() -> None:
    records = Records(np.arange(4), np.array([1, -1, 0, -1]))
    assert labelled(records).labels.tolist() == [1, 0]


def test_the_optimiser_is_the_orders() -> None:
    order = train_order(optimizer="sgd", lr=0.5, momentum=0.9, weight_decay=0.1)
    assert ordered_optimizer(order) == Optimizer("sgd", 0.5, 0.9, 0.1)
    with pytest.raises(OrderError, match="an optimiser that is not known here"):
        ordered_optimizer(replace(order, optimizer="lion"))


def test_plain_training_repeats_to_the_bit_and_costs_nothing(task: ClientTask) -> None:
    one, two = (train_plainly(task, lambda: load_task(task.order, task.site)) for _ in range(2))
    assert np.array_equal(one.weights["parameters"], two.weights["parameters"])
    assert not np.array_equal(one.weights["parameters"], task.start)
    assert one.mechanism.noise_multiplier == 0
    assert task.store.account().entries == 0


def test_private_training_is_paid_for_once_and_for_as_many_rounds_as_were_planned(task: ClientTask) -> None:
    one, two = (private(task) for _ in range(2))
    assert np.array_equal(one.weights["parameters"], two.weights["parameters"])
    assert one.mechanism.noise_multiplier > 0
    assert task.store.account().entries == 1
    with pytest.raises(BudgetError, match="planned for 1 rounds, and they are used up"):
        private(task, round=2)


@pytest.mark.parametrize("change", [{"epochs": 2}, {"batch_size": 7}, {"h0": "f00d"}], ids=str)
def test_other_training_than_was_planned_for_is_refused_before_anything_is_spent(
    task: ClientTask, change: dict[str, Any]
) -> None:
    with pytest.raises(OrderError, match="other training than this client's budget was planned for"):
        private(task, **change)
    assert task.store.account().entries == 0
