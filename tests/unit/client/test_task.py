"""The update that answers an order, given a trained model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.client.handlers import open_task
from fedaux.client.loading import load_task
from fedaux.client.local_training import Trained
from fedaux.client.site import Site
from fedaux.client.stored_results import LocalResult
from fedaux.client.task import ClientTask
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, LocalConfig, PretrainConfig
from fedaux.core.messages import Account
from fedaux.models import flatten_state, to_half
from fedaux.privacy.accounting import Mechanism
from fedaux.server.server import make_server
from fedaux.server.start import initial_state

CONFIG = Config(
    method="scaffold",
    prototypes=(PrototypeSpec.of("mlp", features=8, hidden=8),),
    data=DataConfig(clients=3, alpha=1.0),
    aux=AuxConfig(limit=100),
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(optimizer="sgd"),
)


@pytest.fixture
def task(tmp_path: Path) -> ClientTask:
    server = make_server(CONFIG, cache=tmp_path / "cache")
    order = server.orders.train(initial_state(server), "client-001")
    return open_task(order, Site(CONFIG, tmp_path / "clients", ("client-001",)))


def test_an_update_is_what_the_method_makes_of_the_trained_model(task: ClientTask) -> None:
    model, records = load_task(task.order, task.site)
    weights = flatten_state(model)
    weights["parameters"] += 1
    update = task.update(LocalResult(weights, len(records), Trained(0.5, 4), 1.5), lambda: model)
    assert (update.client, update.round, update.records) == ("client-001", 1, len(records))
    assert (update.loss, update.seconds, update.noise, update.steps) == (0.5, 1.5, 0.0, 0)
    assert np.array_equal(update.weights["parameters"], task.start + 1)
    assert np.allclose(update.extra["c"], -1 / (4 * task.order.lr))  # (start − trained) / (K·lr)
    assert np.array_equal(task.states.load(1)["c"], update.extra["c"])  # kept for the next round
    assert Account.from_json(update.account) == task.store.account()


def test_private_training_states_its_noise(task: ClientTask) -> None:
    model, records = load_task(task.order, task.site)
    result = LocalResult(flatten_state(model), len(records), Trained(0.0, 7), 0.0, Mechanism(2.0, 0.25, 7))
    update = task.update(result, lambda: model)
    assert (update.noise, update.rate, update.steps) == (2.0, 0.25, 7)


def test_half_precision_is_answered_in_half_precision(task: ClientTask) -> None:
    model, records = load_task(task.order, task.site)
    order = replace(task.order, weights=to_half(task.order.weights))
    half = replace(task, order=order)
    update = half.update(LocalResult(flatten_state(model), len(records), Trained(0.5, 4), 1.5), lambda: model)
    assert half.start.dtype == np.float32
    assert update.weights["parameters"].dtype == np.float16
