"""One server: a Flower app with the drop-in strategy and a run of this package end in
the same global weights.

Both train the same network on the same parts of the digits, from the same start, in the
same batches; releases are seeded. The own server knows the network by its registered
name, the app brings it along.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from fedaux import Config, register
from fedaux.client.training import train_local
from fedaux.config.distillation import DistillConfig, TeachersConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.rng import derive_seed, seeded_torch, torch_stream
from fedaux.data.federated import open_data
from fedaux.data.user_rows import UserRecords
from fedaux.flower import FedAUX, add_release_handler
from fedaux.flower.client_app import app as own_app
from fedaux.flower.federation import GridFederation
from fedaux.flower.in_process import InProcessGrid
from fedaux.models import load_state, registry
from fedaux.models.optimizer import Optimizer
from fedaux.privacy.module_validation import per_record_safe
from fedaux.scoring.base import bound_function
from fedaux.server.loop import run as run_rounds
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from fedaux.server.server import make_server
from helpers.audited_sites import with_own_sends

NODES = ("2", "3", "4", "5")  # how an in-process grid calls its clients
CONFIG = Config(
    rounds=2,
    head_init="random",  # the strategy begins with the app's own weights
    prototypes=(PrototypeSpec("model"),),  # what the strategy calls the app's network
    data=DataConfig(clients=4, alpha=0.5),
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(epochs=2, lr=5e-3),
    distill=DistillConfig(steps=4, lr=1e-3),
    privacy=PrivacyConfig(epsilon=2.0, embedding_dim=8, unsafe_seed=7),
    federation=FederationConfig(sites=NODES),
)


@per_record_safe
class Features(nn.Module):
    """With buffers and counters, so that nothing of a model can be forgotten."""

    width = 16

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Linear(32, 16),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x))


@per_record_safe
class Net(nn.Module):
    """The app's network."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.head = Features(), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def network(shape: tuple[int, ...]) -> nn.Module:
    """The same for the own server, which puts a head on it."""
    return Features()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register("model")(network)


def own_run(config: Config, folder: Path) -> tuple[RunState, RunState]:
    """(before the first round, after the last)."""
    server = make_server(config, cache=folder / "cache")
    start = initial_state(server)
    settings = {
        "config": json.dumps(with_own_sends(config).to_dict()),
        "vault": str(folder / "own"),
    }
    grid = InProcessGrid(own_app, len(NODES), {})
    for context, name in zip(grid._contexts.values(), NODES, strict=True):
        context.node_config.update({**settings, "clients": name})
    federation = GridFederation(
        grid, {name: int(name) for name in NODES}, bounds=bound_function(server.scorer)
    )
    return start, run_rounds(server, federation, start, lambda state: None)


def own_data(config: Config, context: Context) -> tuple[Tensor, Tensor]:
    records = open_data(config).client(int(context.node_config["partition-id"]))
    return records.tensor(), torch.from_numpy(records.labels)


def make_app(config: Config, vault: Path) -> ClientApp:
    """As an app may be that knows nothing of fedaux but its training loop and its
    handler.
    """
    app, privacy = ClientApp(), config.privacy

    @app.train()
    def train(message: Message, context: Context) -> Message:
        records, model = UserRecords.of(*own_data(config, context)), Net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        name, round_ = (
            NODES[int(context.node_config["partition-id"])],
            message.content["config"]["server-round"],
        )
        seed, local = derive_seed(config.seed, "batches", name, round_), config.local
        steps: dict[str, Any] = {"epochs": local.epochs, "batch_size": local.batch_size}
        with seeded_torch(seed):
            optimizer = Optimizer(lr=local.lr)
            loss = train_local(
                model,
                records,
                **steps,
                optimizer=optimizer,
                generator=torch_stream(seed),
            ).loss
        metrics = MetricRecord({"num-examples": len(records), "loss": loss})
        arrays = ArrayRecord(model.state_dict())
        return Message(
            RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message
        )

    budget: dict[str, Any] = {
        "epsilon": privacy.epsilon,
        "unsafe_seed": privacy.unsafe_seed,
        "scorer": privacy.scorer,
    }
    budget["embedding_dim"] = privacy.embedding_dim
    add_release_handler(
        app,
        model=Net,
        data=lambda context: own_data(config, context),
        vault=vault,
        **budget,
    )
    return app


def drop_in_run(
    config: Config, start: RunState, folder: Path
) -> tuple[FedAUX, nn.Module]:
    """(the strategy after the last round, the global model)."""
    model = Net()
    load_state(model, start.weights["model"])
    strategy = FedAUX(
        keep=None,
        model=model,
        public=open_data(config).aux.tensor(),
        classes=10,
        distill_steps=config.distill.steps,
        distill_lr=config.distill.lr,
        distill_batch_size=config.distill.batch_size,
        teacher_weights=config.teachers.weights,
        max_share=config.teachers.max_share,
        scorer=config.privacy.scorer,
        embedding_dim=config.privacy.embedding_dim,
        seed=config.seed,
        fraction_evaluate=0.0,
    )
    grid = InProcessGrid(make_app(config, folder / "app"), len(NODES), {})
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(model.state_dict()),
        num_rounds=config.rounds,
    )
    model.load_state_dict(result.arrays.to_torch_state_dict())
    return strategy, model


VARIANTS = {
    "defaults": CONFIG,
    "certainty": replace(
        CONFIG, teachers=TeachersConfig(weights="certainty", max_share=0.4)
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_drop_in_and_own_server_end_in_the_same_weights(
    variant: str, tmp_path: Path
) -> None:
    config = VARIANTS[variant]
    start, own = own_run(config, tmp_path)
    strategy, model = drop_in_run(config, start, tmp_path)
    assert not any(result.failures for result in own.history)
    assert [sorted(result.client_metrics) for result in strategy.state.history] == [
        list(NODES)
    ] * 2
    for node, release in own.releases.items():
        assert np.array_equal(
            strategy.releases[node].arrays["values"], release.arrays["values"]
        )
    found, expected = strategy.state.weights["model"], own.weights["model"]
    assert found.keys() == expected.keys() == {"parameters", "buffers", "counters"}
    for name, array in expected.items():
        assert np.abs(found[name] - array).max() <= 1e-5
        # and it is not where it began
        assert np.abs(array - start.weights["model"][name]).max() > 1e-2
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == {
        name: tensor.shape for name, tensor in Net().state_dict().items()
    }
    for one, other in zip(strategy.state.history, own.history, strict=True):
        assert one.distill_loss == pytest.approx(other.distill_loss, rel=1e-4)
        assert one.effective_teachers == pytest.approx(
            other.effective_teachers, rel=1e-4
        )
        assert one.largest_teacher == (
            other.largest_teacher[0],
            pytest.approx(other.largest_teacher[1], rel=1e-4),
        )
    assert strategy.state.ledger.statement() == own.ledger.statement()
