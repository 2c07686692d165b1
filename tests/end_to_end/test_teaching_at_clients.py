"""teachers.run_on = "clients": every site runs its own model on its own copy of
D_distill, and the run is the same.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config, run
from fedaux.client import teaching
from fedaux.config.distillation import DistillConfig, TeachersConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.messages import Order, Reply, TrainOrder, Update
from fedaux.runs.runner import in_process
from fedaux.server import round_teachers
from fedaux.server.loop import run as run_rounds
from fedaux.server.result import FinishedRun
from fedaux.server.server import make_server
from helpers.shared_data import load, needs

CIFAR = (
    "cifar10_train.webp.npz",
    "cifar10_test.webp.npz",
    "tinyimagenet32_24k.webp.npz",
)
CNN = PrototypeSpec.of("cnn", width=8, features=16, norm="batch")
MLP = PrototypeSpec.of("mlp", features=8, hidden=16)
CONFIG = Config(
    rounds=2,
    prototypes=(CNN, MLP),
    data=DataConfig(clients=4, alpha=0.3),
    aux=AuxConfig(fraction=0.9, limit=200),  # few private records
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(lr=5e-3),
    distill=DistillConfig(epochs=1, lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=8, unsafe_seed=3),
)
SETTINGS = {
    "networks": CONFIG,
    "heads": replace(CONFIG, head_only=True),
    "a part of D_distill": replace(CONFIG, teachers=TeachersConfig(examples=60)),
    "heads on a part": replace(
        CONFIG, head_only=True, teachers=TeachersConfig(examples=60)
    ),
    "certainty": replace(CONFIG, teachers=TeachersConfig(weights="certainty")),
    "logistic": replace(
        CONFIG, privacy=replace(CONFIG.privacy, scorer="logistic", epsilon=50.0)
    ),
    "half precision": replace(CONFIG, federation=FederationConfig(precision="float16")),
    "feddf": replace(CONFIG, method="feddf"),
    "fedet": replace(CONFIG, method="fedet"),
    "fedbe": replace(CONFIG, method="fedbe", prototypes=(MLP,)),
}


def at(config: Config, who: str) -> Config:
    return replace(config, teachers=replace(config.teachers, run_on=who))


def both(config: Config, folder: Path) -> tuple[FinishedRun, FinishedRun]:
    one, other = (
        run(at(config, who), folder / who, cache=folder / "cache")
        for who in ("server", "clients")
    )
    return one, other


@pytest.mark.parametrize("config", SETTINGS.values(), ids=SETTINGS)
def test_the_weights_are_those_of_a_server_that_teaches(
    config: Config, tmp_path: Path
) -> None:
    server, clients = both(config, tmp_path)
    assert not any(
        result.failures for each in (server, clients) for result in each.state.history
    )
    for label, arrays in server.state.weights.items():
        for key, array in arrays.items():
            assert np.abs(array - clients.state.weights[label][key]).max() <= 1e-5
    for one, other in zip(server.state.history, clients.state.history, strict=True):
        assert one.distill_loss == pytest.approx(other.distill_loss, rel=1e-5)
        assert one.effective_teachers == pytest.approx(
            other.effective_teachers, rel=1e-5
        )
        assert other.bytes_received > one.bytes_received
        for client, metrics in one.client_metrics.items():
            share = other.client_metrics[client].teacher_share
            assert share is metrics.teacher_share is None or share == pytest.approx(
                metrics.teacher_share, rel=1e-5
            )


@needs(*CIFAR)
def test_heads_on_features_of_real_images(tmp_path: Path) -> None:
    (x, y), (x_test, y_test), (public, _) = (load(name) for name in CIFAR)
    np.savez(
        tmp_path / "private.npz",
        x=x[:1000],
        y=y[:1000],
        x_test=x_test[:500],
        y_test=y_test[:500],
    )
    np.save(tmp_path / "public.npy", public[::40])
    config = replace(
        CONFIG,
        head_only=True,
        prototypes=(PrototypeSpec.of("resnet8", width=8),),
        data=DataConfig(
            source="npz", path=str(tmp_path / "private.npz"), clients=4, alpha=0.01
        ),
        aux=AuxConfig(source="npy", path=str(tmp_path / "public.npy")),
    )
    test_the_weights_are_those_of_a_server_that_teaches(config, tmp_path)


def test_the_server_never_runs_a_clients_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(CONFIG, rounds=1)

    def refuse(*_: object) -> None:
        raise AssertionError("a teacher pass on the server")

    monkeypatch.setattr(round_teachers, "teacher_logits", refuse)
    result = run(at(config, "clients"), tmp_path / "run", cache=tmp_path / "cache")
    assert all(each.distill_loss is not None for each in result.state.history)
    with pytest.raises(AssertionError, match="teacher pass"):
        run(config, tmp_path / "other", cache=tmp_path / "cache")


def test_private_heads_teach_as_well(tmp_path: Path) -> None:
    privacy = replace(
        CONFIG.privacy,
        epsilon_total=3.0,
        private_training=True,
        unsafe_seed=1,
        embedding_dim=4,
        sample_rate=1.0,
    )
    config = replace(CONFIG, head_only=True, prototypes=(MLP,), privacy=privacy)
    server, clients = both(config, tmp_path)
    (label,) = server.state.weights
    assert not any(result.failures for result in clients.state.history)
    found, expected = (
        each.state.weights[label]["parameters"] for each in (clients, server)
    )
    assert np.abs(found - expected).max() <= 1e-5


# A client's own settings


class Watched:
    """Clients of this process whose settings may differ from the server's."""

    def __init__(
        self, config: Config, folder: Path, own: dict[str, Config] | None = None
    ) -> None:
        self.inner, self.orders = in_process(config, folder), list[Order]()
        contexts = self.inner.grid._contexts
        for name, node in self.inner.nodes.items():
            settings = json.dumps((own or {}).get(name, config).to_dict())
            contexts[node].node_config.update({"config": settings, "clients": name})

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        self.orders += orders
        yield from self.inner.ask(orders)


class Boastful(Watched):
    """One client states that every public example is its own."""

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        for reply in super().ask(orders):
            if isinstance(reply, Update) and reply.client == "client-002":
                full = np.full(len(reply.ensemble["mass"]), 2**40)
                reply = replace(
                    reply, ensemble={**reply.ensemble, "mass": full, "squares": full}
                )
            yield reply


def test_weights_that_are_not_those_of_the_release_cost_the_contribution(
    tmp_path: Path,
) -> None:
    config = replace(at(CONFIG, "clients"), prototypes=(MLP,), rounds=1)
    federation = Boastful(config, tmp_path)
    state = run_rounds(
        make_server(config, cache=tmp_path / "cache"),
        federation,
        None,
        lambda state: None,
    )
    assert [failure.client for failure in state.history[0].failures] == ["client-002"]
    assert "not those of its release" in state.history[0].failures[0].reason


def test_a_client_that_lost_its_features_is_sent_the_extractor_again(
    tmp_path: Path,
) -> None:
    """Whole networks too need h0: their weights are scores of its features."""
    config = replace(at(CONFIG, "clients"), prototypes=(MLP,), rounds=3)
    federation = Watched(config, tmp_path)
    server = make_server(config, cache=tmp_path / "cache")

    def lose(state: object) -> None:
        if getattr(state, "round", 0) == 1:
            teaching._features.clear()
            for file in (tmp_path / "clients" / "client-002").glob("features-*"):
                file.unlink()

    state = run_rounds(server, federation, None, lose)
    orders = [order for order in federation.orders if isinstance(order, TrainOrder)]
    sent = [
        {order.client for order in orders if order.round == number and order.extractor}
        for number in (1, 2, 3)
    ]
    assert sent == [set(), set(), {"client-002"}]
    assert [
        [failure.client for failure in result.failures] for result in state.history
    ] == [[], ["client-002"], []]
