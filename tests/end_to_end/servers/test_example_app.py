"""Users' own Flower apps run as their READMEs say: the example, and what `fedaux new` writes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedaux.flower.new_app import write_app
from fedaux.server.run_state import RunState
from helpers.harness import BIN, Servers

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower-app"


def example(folder: Path) -> None:
    shutil.copytree(EXAMPLE, folder)


@pytest.mark.parametrize("write", [example, pytest.param(write_app, marks=pytest.mark.slow)])
def test_a_users_own_app_runs_in_flowers_simulation(tmp_path: Path, write: Callable[[Path], object]) -> None:
    pytest.importorskip("ray", reason="Flower's simulation needs ray: pip install 'fedaux[simulation]'")
    app = tmp_path / "my-app"
    write(app)
    with Servers(tmp_path / "servers", plain=True) as servers:
        servers.superlink("--simulation")
        told = ["--run-config", f'out="{tmp_path / "run"}" set="rounds=2; seed=3"']
        nodes = ["--federation-config", "num-supernodes=5 client-resources-num-cpus=1"]
        servers.start("run", str(BIN / "flwr"), "run", str(app), "real", "--stream", *told, *nodes)
        servers.finish()
    state = RunState.load(tmp_path / "run")
    assert (state.round, state.config.seed, len(state.releases)) == (2, 3, 5)
    assert next(iter(state.history[-1].accuracy.values())) > 0.3
    assert (tmp_path / "run" / "model" / "network-0" / "model.safetensors").is_file()
