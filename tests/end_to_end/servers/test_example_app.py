"""The example of a user's own Flower app runs as its README says: their network and data, our server and client."""

import shutil
from pathlib import Path

import pytest

from fedaux.algorithms.run_state import RunState
from helpers.harness import BIN, Servers

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower-app"


def test_a_users_own_app_runs_in_flowers_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Flower's simulation needs ray: pip install 'fedaux[simulation]'")
    app = shutil.copytree(EXAMPLE, tmp_path / "app")
    with Servers(tmp_path / "servers", plain=True) as servers:
        servers.superlink("--simulation")
        told = f'out="{tmp_path / "run"}" set="rounds=2; seed=3"'
        nodes = "num-supernodes=5 client-resources-num-cpus=1"
        servers.start(
            "run",
            str(BIN / "flwr"),
            "run",
            str(app),
            "real",
            "--stream",
            "--run-config",
            told,
            "--federation-config",
            nodes,
        )
        servers.finish()
    state = RunState.load(tmp_path / "run")
    assert (state.round, state.config.seed, len(state.releases)) == (2, 3, 5)
    assert next(iter(state.history[-1].accuracy.values())) > 0.3
    assert (tmp_path / "run" / "model" / "network-0" / "model.safetensors").is_file()
