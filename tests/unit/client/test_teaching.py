"""A client that teaches: on the server's D_distill or not at all, and what it sends
follows from what it was sent.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.client.loading import load_task
from fedaux.client.site import Site
from fedaux.client.teaching import prepare_teaching, teach
from fedaux.config.distillation import TeachersConfig
from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    FederationConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.failures import OrderError
from fedaux.messages import Teaching, TrainOrder
from fedaux.methods.contribution import Ensemble
from fedaux.methods.teachers import teacher_logits
from fedaux.runs.runner import in_process
from fedaux.scoring.teacher_weights import TeacherWeights
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from fedaux.server.server import Server, make_server

CONFIG = Config(
    prototypes=(PrototypeSpec.of("mlp", features=8, hidden=8),),
    data=DataConfig(clients=3, alpha=1.0),
    aux=AuxConfig(limit=100),
    pretrain=PretrainConfig(epochs=0),
    teachers=TeachersConfig(run_on="clients"),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=4, unsafe_seed=1),
)
CLIENT = "client-001"


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return make_server(CONFIG, cache=tmp_path / "cache")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(CONFIG, tmp_path / "clients", (CLIENT,))


@pytest.fixture
def state(server: Server, tmp_path: Path) -> RunState:
    """After all clients have made their release, and so have features of D_distill."""
    state = initial_state(server)
    releases = {
        one.client: one
        for one in in_process(CONFIG, tmp_path).ask(
            [server.orders.prepare(state, name) for name in server.clients]
        )
    }
    return state.with_releases(releases)  # type: ignore[arg-type]


@pytest.fixture
def weights(server: Server, state: RunState) -> TeacherWeights:
    embedding = server.restore(state)
    assert embedding is not None
    return embedding.teacher_weights(state.releases, server.clients)


@pytest.fixture
def order(server: Server, state: RunState, weights: TeacherWeights) -> TrainOrder:
    return server.orders.train(state, CLIENT, weights)


def test_the_half_is_the_models_logits_with_the_servers_weights(
    server: Server, order: TrainOrder, site: Site, weights: TeacherWeights
) -> None:
    model, _ = load_task(order, site)
    sent = {**order.weights, "parameters": order.weights["parameters"] * 2}
    found = teach(order, site, model, sent)
    (label,) = server.networks.trained
    logits = teacher_logits(server.networks.trained[label], sent, server.public.distill)
    expected = Ensemble.of(logits, weights.of(CLIENT)).to_arrays()
    assert found.keys() == expected.keys()
    assert all(np.array_equal(array, expected[name]) for name, array in found.items())


def test_without_a_scorer_the_weights_are_one(
    server: Server, order: TrainOrder, site: Site
) -> None:
    alike = replace(
        order,
        teaching=Teaching(
            server.public.distill_hash, len(server.public.distill)
        ).to_json(),
    )
    found = teach(alike, site, load_task(order, site)[0], order.weights)
    assert set(found["mass"].tolist()) == {2**40}


def test_who_is_not_asked_does_not_teach(order: TrainOrder, site: Site) -> None:
    assert (
        teach(
            replace(order, teaching=""), site, load_task(order, site)[0], order.weights
        )
        == {}
    )


def other(**changes: Any) -> Config:
    return replace(CONFIG, **changes)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (other(seed=3), "seed of this client's settings to the server's"),
        (other(aux=AuxConfig(limit=99)), "D_distill here has the hash"),
        (
            other(teachers=TeachersConfig()),
            "its settings have teachers.run_on = 'server'",
        ),
        (
            other(privacy=replace(CONFIG.privacy, scorer="logistic")),
            "which this client cannot make",
        ),
    ],
    ids=["seed", "aux", "run_on", "scorer"],
)
def test_other_settings_refuse(
    own: Config, reason: str, order: TrainOrder, site: Site
) -> None:
    with pytest.raises(OrderError, match=reason):
        teach(
            order, replace(site, config=own), load_task(order, site)[0], order.weights
        )


def test_a_site_needs_public_data_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"needs aux\.source"):
        replace(
            CONFIG,
            data=DataConfig(partition="own"),
            federation=FederationConfig(sites=("a",)),
        )


def test_features_are_prepared_only_where_clients_teach(
    server: Server, site: Site, tmp_path: Path
) -> None:
    order = server.orders.prepare(initial_state(server), CLIENT)
    prepare_teaching(
        order, replace(site, config=replace(CONFIG, teachers=TeachersConfig()))
    )
    assert not list(tmp_path.rglob("clients/*/features-*"))
    prepare_teaching(order, site)
    (file,) = tmp_path.rglob("clients/*/features-*")
    assert np.load(file).shape == (100, 8)
    assert file.parent.stat().st_mode & 0o077 == 0  # the account will be there
