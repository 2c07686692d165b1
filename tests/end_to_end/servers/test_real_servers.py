"""The same config in process, in Flower's simulation, and on a SuperLink with three
SuperNodes: the same run.
"""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedaux import Config, Result, run
from fedaux.config.distillation import TeachersConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import LocalConfig
from fedaux.server.run_state import RunState
from helpers.three_sites import CONFIG as THREE
from helpers.three_sites import SITES, run_to_the_end

# noise that two runs can share
SEEDED = replace(THREE, privacy=replace(THREE.privacy, unsafe_seed=1))
CONFIG = replace(
    SEEDED,
    prototypes=(
        PrototypeSpec.of("mlp", hidden=32, features=16),
        PrototypeSpec.of("cnn", width=4, features=16),
    ),
)
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None,
    reason="Flower's simulation needs ray: pip install -e '.[simulation]'",
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run in one process."""
    folder = tmp_path_factory.mktemp("here")
    return run(CONFIG, folder / "run", cache=folder / "cache")


def difference(one: RunState, other: RunState) -> float:
    """The largest between any two weights."""
    return max(
        float(np.abs(array - other.weights[label][name]).max())
        for label, arrays in one.weights.items()
        for name, array in arrays.items()
    )


def check_same(here: Result, there: RunState) -> None:
    """Another way to run it led to the same clients, weights and accuracies."""
    assert difference(here.state, there) < 1e-5
    assert [result.mean_accuracy for result in there.history] == pytest.approx(
        here.curve, abs=1e-9
    )
    assert sorted(there.releases) == sorted(here.state.releases) == SITES
    assert [list(one.client_metrics) for one in there.history] == [
        list(one.client_metrics) for one in here.state.history
    ]


def test_three_sites_with_tls_and_keys_do_what_one_process_does(
    here: Result, tmp_path: Path
) -> None:
    there, text = run_to_the_end(tmp_path, CONFIG)
    check_same(here, there)
    assert "sites connected: 3/3" in text
    exported = tmp_path / "run" / "model" / "cnn-1"
    assert load_file(exported / "model.safetensors")["head.weight"].shape == (10, 16)
    card = json.loads((exported / "card.json").read_text())
    assert (
        card["metrics"]["accuracy"]
        == there.history[-1].accuracy["cnn(features=16, width=4)"]
    )
    assert "NOT PRIVATE" in card["privacy"]["statement"]  # seeded
    assert Config.from_dict(card["config"]) == CONFIG


@needs_ray
def test_flowers_simulation_does_what_one_process_does(
    here: Result, tmp_path: Path
) -> None:
    check_same(here, run_to_the_end(tmp_path, CONFIG, simulation=True)[0])


@pytest.mark.slow
@pytest.mark.parametrize("simulation", [False, pytest.param(True, marks=needs_ray)])
def test_what_clients_keep_of_a_method_lasts_from_round_to_round(
    tmp_path: Path, simulation: bool
) -> None:
    """SCAFFOLD's control variates: each round may run in a new process, and finds them
    in the vault.
    """
    local = LocalConfig(optimizer="sgd", lr=0.05, batch_size=8)
    config = replace(
        CONFIG,
        rounds=3,
        method="scaffold",
        prototypes=CONFIG.prototypes[:1],
        local=local,
    )
    here = run(config, tmp_path / "here", cache=tmp_path / "cache")
    assert (
        difference(
            here.state, run(replace(config, method="fedavg"), tmp_path / "plain").state
        )
        > 1e-3
    )
    there, _ = run_to_the_end(tmp_path, config, plain=True, simulation=simulation)
    assert difference(here.state, there) < 1e-5
    vaults = tmp_path / "run" / "clients" if simulation else tmp_path / "vaults"
    assert (
        sorted(path.parent.name for path in vaults.glob("*/state-*.safetensors"))
        == SITES
    )


@pytest.mark.slow
def test_sites_send_their_sums_and_then_train_from_their_head(tmp_path: Path) -> None:
    """The head of all sites' sums is that of the pooled records, to the bit of a run in
    process.
    """
    config = replace(THREE, method="fedavg+p", head_only=True, head_init="ridge")
    here = run(config, tmp_path / "here", cache=tmp_path / "cache").state
    there, _ = run_to_the_end(tmp_path, config)
    assert sorted(there.sums_received) == SITES
    assert [sorted(result.client_metrics) for result in there.history] == [SITES] * len(
        there.history
    )
    for label, arrays in here.sums.items():
        assert all(
            np.array_equal(array, there.sums[label][name])
            for name, array in arrays.items()
        )
    assert difference(here, there) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head_only", "examples"),
    [(False, 0), (True, 100)],
    ids=["networks", "heads on a part"],
)
def test_sites_that_teach_themselves_end_in_the_same_weights(
    head_only: bool, examples: int, tmp_path: Path
) -> None:
    """Sites that run their own models on public data end where a server that does it
    ends.
    """
    config = replace(
        SEEDED, head_only=head_only, teachers=TeachersConfig(examples=examples)
    )
    here = run(config, tmp_path / "here", cache=tmp_path / "cache").state
    at_sites = replace(config, teachers=replace(config.teachers, run_on="clients"))
    there, _ = run_to_the_end(tmp_path, at_sites)
    assert [sorted(result.client_metrics) for result in there.history] == [SITES] * 2
    assert difference(here, there) < 1e-5
    assert here.history[-1].distill_loss == pytest.approx(
        there.history[-1].distill_loss, rel=1e-4
    )
