"""Linear mode: h0 stays frozen, its features are computed once, and only heads train,
travel and are distilled.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux import Config, run
from fedaux.config.distillation import DistillConfig, TeachersConfig
from fedaux.config.methods import METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import DataConfig, PretrainConfig, PrivacyConfig
from fedaux.core.failures import Refusal
from fedaux.core.rng import torch_stream
from fedaux.data.federated import open_data
from fedaux.export.export import export_model
from fedaux.export.model import Model
from fedaux.messages import TrainOrder, Update
from fedaux.models import build, flatten_state, load_state
from fedaux.models.inference import predict
from fedaux.runs.runner import in_process
from fedaux.server.loop import run as run_rounds
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from fedaux.server.server import Server

CNN, MLP = (
    PrototypeSpec.of("cnn", width=8, features=16),
    PrototypeSpec.of("mlp", features=8),
)
CONFIG = Config(
    rounds=2,
    head_only=True,
    prototypes=(CNN, MLP),
    data=DataConfig(clients=4, alpha=0.5),
    pretrain=PretrainConfig(epochs=1, batch_size=128, min_crop_area=0.5, flip=False),
    distill=DistillConfig(epochs=1, lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=4, unsafe_seed=0),
)


def network_of(state: RunState, spec: PrototypeSpec):  # type: ignore[no-untyped-def]
    """The whole network, put together again by hand: h0, and a head on its own
    features.
    """
    model, arrays = (
        build(spec, (1, 8, 8), 10, seed=9),
        state.standardisation[spec.label],
    )
    load_state(model.features, state.extractors[spec.label])
    load_state(model.head, state.weights[spec.label])
    with torch.no_grad():
        model.head.weight /= torch.from_numpy(arrays["deviation"])
        model.head.bias -= model.head.weight @ torch.from_numpy(arrays["mean"])
    return model


# of each kind one; test_experiment.py runs every method
QUICK = ("fedavg", "fedprox+p", "scaffold", "fedbe+p", "fedaux")


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in METHODS
    ],
)
def test_every_method_trains_heads_alone(method: str, tmp_path: Path) -> None:
    local = (
        replace(CONFIG.local, optimizer="sgd") if "scaffold" in method else CONFIG.local
    )
    state = run(
        replace(CONFIG, method=method, local=local),
        tmp_path / "run",
        cache=tmp_path / "cache",
    ).state
    assert {
        label: len(arrays["parameters"]) for label, arrays in state.weights.items()
    } == {
        CNN.label: 10 * 17,
        MLP.label: 10 * 9,
    }
    assert state.prepared == {f"client-{i:03d}" for i in range(4)}
    assert not any(result.failures for result in state.history)
    # the whole network, put together again, gives the accuracy that was reported for
    # its head
    for spec in CONFIG.prototypes:
        test = open_data(CONFIG).test
        found = (
            predict(network_of(state, spec), test).argmax(axis=1) == test.labels
        ).mean()
        # ties, rounded
        assert found == pytest.approx(
            state.history[-1].accuracy[spec.label], abs=1.5 / len(test)
        )


@pytest.mark.parametrize("kind", ["standardised", "raw"])
def test_a_head_on_features_learns_what_the_frozen_network_would(
    kind: str, tmp_path: Path
) -> None:
    """One client's update against plain PyTorch with every parameter of the extractor
    frozen.
    """
    local = replace(CONFIG.local, epochs=3)
    config = replace(
        CONFIG, prototypes=(CNN,), method="fedavg+p", local=local, head_features=kind
    )
    server, federation = set_up(config, tmp_path)
    state = initial_state(server)
    server.restore(state)
    (reply,) = federation.ask([server.orders.train(state, "client-001")])
    assert isinstance(reply, Update)

    model, records = build(CNN, (1, 8, 8), 10, seed=3), open_data(config).client(1)
    load_state(model.features, state.extractors[CNN.label])
    load_state(model.head, state.weights[CNN.label])
    optimiser = torch.optim.Adam(model.head.parameters(), lr=1e-3)
    order = server.orders.train(state, "client-001")
    generator, negatives = (
        torch_stream(order.seed),
        server.public.aux.take(server.public.split.negatives),
    )
    for _ in range(3):
        for rows in torch.randperm(len(records), generator=generator).split(32):
            with torch.no_grad():
                features = model.eval().features(records.tensor(rows.numpy()))
                if kind == "standardised":
                    public = model.features(negatives.tensor())
                    deviation = public.std(0, correction=0)
                    # some features are dead
                    least = 0.01 * deviation.square().mean().sqrt()
                    features = (features - public.mean(0)) / deviation.clamp(min=least)
            loss = torch.nn.functional.cross_entropy(
                model.head(features), torch.from_numpy(records.labels[rows])
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    assert np.allclose(
        flatten_state(model.head)["parameters"], reply.weights["parameters"], atol=1e-5
    )


def test_random_features_are_of_the_exported_network_too(tmp_path: Path) -> None:
    """Trained, distilled and tested on them, and on clients that teach; the export is
    plain layers.
    """
    teachers = TeachersConfig(run_on="clients")
    config = replace(CONFIG, prototypes=(CNN,), random_features=50, teachers=teachers)
    result = run(config, tmp_path / "run", cache=tmp_path / "cache")
    assert {
        name: array.shape for name, array in result.state.weights[CNN.label].items()
    } == {"parameters": (510,)}
    model, test = (
        Model.from_pretrained(export_model(result.folder)[0]),
        open_data(CONFIG).test,
    )
    right = float((model.predict(test.gather()).argmax(axis=1) == test.labels).mean())
    assert right == pytest.approx(result.accuracy, abs=1.5 / len(test))
    assert model.card["hidden"] == 50


def test_the_extractor_is_sent_once_and_again_to_who_has_lost_its_features(
    tmp_path: Path,
) -> None:
    """Costs the round in which it is noticed, for that client alone."""
    config = replace(CONFIG, prototypes=(CNN,), method="fedavg+p", rounds=4)
    server, federation = set_up(config, tmp_path)
    sent: list[dict[str, bool]] = []
    ask = federation.ask

    def watched(orders):  # type: ignore[no-untyped-def]
        assert all(isinstance(order, TrainOrder) for order in orders)
        sent.append({order.client: bool(order.extractor) for order in orders})
        if len(sent) == 2:
            for file in (tmp_path / "clients" / "client-002").glob("features-*"):
                file.unlink()
        return ask(orders)

    federation.ask = watched  # type: ignore[method-assign]
    state = run_rounds(server, federation, None, lambda state: None)
    everybody, nobody = (
        dict.fromkeys(server.clients, True),
        dict.fromkeys(server.clients, False),
    )
    assert sent == [everybody, nobody, {**nobody, "client-002": True}, nobody]
    assert [
        [failure.client for failure in result.failures] for result in state.history
    ] == [[], ["client-002"], [], []]
    assert state.history[1].failures[0].reason == Refusal.ORDER.description


@pytest.mark.slow
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole = run(
        replace(CONFIG, rounds=3), tmp_path / "whole", cache=tmp_path / "cache"
    ).state
    run(CONFIG, tmp_path / "cut", cache=tmp_path / "cache")
    cut = run(
        replace(CONFIG, rounds=3), tmp_path / "cut", cache=tmp_path / "cache"
    ).state
    for label, arrays in whole.weights.items():
        assert (
            arrays["parameters"].tobytes() == cut.weights[label]["parameters"].tobytes()
        )


def set_up(config: Config, folder: Path):  # type: ignore[no-untyped-def]
    data = open_data(config)
    server = Server.of(config, data.aux, data.test, 10, data.clients, folder / "cache")
    return server, in_process(config, folder)
