"""The same config in process, in Flower's simulation, and on a SuperLink with three SuperNodes: the same run."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedaux import Config, Result, run
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import LocalConfig
from fedaux.server.run_state import RunState
from helpers.harness import Servers
from helpers.three_sites import CONFIG as THREE
from helpers.three_sites import SITES, Federation

CONFIG = replace(
    THREE,
    rounds=3,
    prototypes=(PrototypeSpec.of("mlp", hidden=32, features=16), PrototypeSpec.of("cnn", width=4, features=16)),
    privacy=replace(THREE.privacy, unsafe_seed=1),  # noise that two runs can share
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run in one process."""
    folder = tmp_path_factory.mktemp("here")
    return run(CONFIG, folder / "run", cache=folder / "cache")


def same(one: RunState, other: RunState) -> float:
    """The largest difference between any two weights."""
    return max(
        float(np.abs(array - other.weights[label][name]).max())
        for label, arrays in one.weights.items()
        for name, array in arrays.items()
    )


def check_same(here: Result, folder: Path) -> RunState:
    """Another way to run it led to the same clients, weights and accuracies."""
    there = RunState.load(folder)
    assert same(here.state, there) < 1e-5
    assert [result.mean_accuracy for result in there.history] == pytest.approx(here.curve, abs=1e-9)
    assert sorted(there.releases) == sorted(here.state.releases) == SITES
    assert [list(one.client_metrics) for one in there.history] == [
        list(one.client_metrics) for one in here.state.history
    ]
    return there


def test_three_sites_with_tls_and_keys_do_what_one_process_does(here: Result, tmp_path: Path) -> None:
    with Servers(tmp_path / "servers") as servers:
        made = Federation(tmp_path, servers, CONFIG)
        made.up()
        made.begin()
        text = servers.finish()
    there = check_same(here, made.out)
    assert "sites connected: 3/3" in text
    exported = load_file(made.out / "model" / "cnn-1" / "model.safetensors")
    assert exported["head.weight"].shape == (10, 16)
    card = json.loads((made.out / "model" / "cnn-1" / "card.json").read_text())
    assert card["metrics"]["accuracy"] == there.history[-1].accuracy["cnn(features=16, width=4)"]
    assert "NOT PRIVATE" in card["privacy"]["statement"]  # seeded
    assert Config.from_dict(card["config"]) == CONFIG


def test_flowers_simulation_does_what_one_process_does(here: Result, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Flower's simulation needs ray: pip install 'fedaux[simulation]'")
    with Servers(tmp_path / "servers", plain=True) as servers:
        made = Federation(tmp_path, servers, CONFIG)
        servers.superlink("--simulation")
        nodes = "num-supernodes=3 client-resources-num-cpus=1"
        servers.run(made.file, made.out, connection=("real", "--federation-config", nodes))
        servers.finish()
    check_same(here, made.out)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["sites", "simulation"])
def test_what_clients_keep_of_a_method_lasts_from_round_to_round(tmp_path: Path, where: str) -> None:
    """SCAFFOLD's control variates: each round may run in a new process, and finds them in the vault."""
    if where == "simulation":
        pytest.importorskip("ray", reason="Flower's simulation needs ray: pip install 'fedaux[simulation]'")
    local = LocalConfig(optimizer="sgd", lr=0.05, batch_size=8)
    config = replace(CONFIG, method="scaffold", prototypes=CONFIG.prototypes[:1], local=local)
    here = run(config, tmp_path / "here", cache=tmp_path / "cache")
    assert same(here.state, run(replace(config, method="fedavg"), tmp_path / "plain").state) > 1e-3
    with Servers(tmp_path / "servers", plain=True) as servers:
        made = Federation(tmp_path, servers, config)
        if where == "sites":
            made.up()
            made.begin()
        else:
            servers.superlink("--simulation")
            nodes = "num-supernodes=3 client-resources-num-cpus=1"
            servers.run(made.file, made.out, connection=("real", "--federation-config", nodes))
        servers.finish()
    assert same(here.state, RunState.load(made.out)) < 1e-5
    vaults = tmp_path / "vaults" if where == "sites" else made.out / "clients"
    assert sorted(path.parent.name for path in vaults.glob("*/state-*.safetensors")) == SITES
