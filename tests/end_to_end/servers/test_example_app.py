"""Users' own Flower apps run in Flower's simulation as their READMEs say: examples, and
what `fedaux new` writes.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedaux.flower.new_app import write_app
from fedaux.server.run_state import RunState
from helpers.harness import BIN, Servers

EXAMPLES = Path(__file__).parents[3] / "examples"
pytest.importorskip(
    "ray", reason="Flower's simulation needs ray: pip install -e '.[simulation]'"
)


def example(folder: Path) -> None:
    shutil.copytree(EXAMPLES / "flower-app", folder)


def simulate(
    servers: Servers, app: Path, settings: str, nodes: int, name: str = "run"
) -> str:
    """The log of a run of this app that has ended."""
    options = [
        "--run-config",
        settings,
        "--federation-config",
        f"num-supernodes={nodes} client-resources-num-cpus=1",
    ]
    servers.start(
        name, str(BIN / "flwr"), "run", str(app), "real", "--stream", *options
    )
    return servers.finish(name)


@pytest.mark.slow
@pytest.mark.parametrize("write", [example, write_app])
def test_a_users_own_app_runs_in_flowers_simulation(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    write(tmp_path / "my-app")
    with Servers(tmp_path / "servers", plain=True) as servers:
        servers.superlink("--simulation")
        simulate(
            servers,
            tmp_path / "my-app",
            f'out="{tmp_path / "run"}" set="rounds=2; seed=3"',
            nodes=5,
        )
    state = RunState.load(tmp_path / "run")
    assert (state.round, state.config.seed, len(state.releases)) == (2, 3, 5)
    assert next(iter(state.history[-1].accuracy.values())) > 0.3
    assert (tmp_path / "run" / "model" / "network-0" / "model.safetensors").is_file()


@pytest.mark.slow
def test_an_existing_app_runs_in_flowers_simulation_with_its_handler_and_strategy(
    tmp_path: Path,
) -> None:
    app, home = (
        shutil.copytree(EXAMPLES / "existing-flower-app", tmp_path / "app"),
        tmp_path / "home",
    )
    home.mkdir()
    with Servers(tmp_path / "servers", plain=True) as servers:
        servers.environment["HOME"] = str(home)  # where the example keeps its vaults
        servers.superlink("--simulation")
        first = simulate(servers, app, "rounds=3", nodes=10)
        stored = releases(home)
        second = simulate(servers, app, "rounds=3", nodes=10, name="again")
    for text in (first, second):
        accuracies = [
            float(found)
            for found in re.findall(r"^accuracy ([\d.]+)", text, re.MULTILINE)
        ]
        assert len(accuracies) == 4
        assert accuracies[-1] > 50
        assert (
            "Each of 10 clients keeps its own account of everything that it ever sent "
            "under noise" in text
        )
    assert len(stored) == 10
    # the second run, under new node ids, was told the same
    assert releases(home) == stored


@pytest.mark.slow
def test_the_baseline_runs_in_flowers_simulation_as_its_readme_says(
    tmp_path: Path,
) -> None:
    """`flwr run .` with Ray, as whoever reviews a baseline calls it."""
    app = shutil.copytree(EXAMPLES / "flower-baseline", tmp_path / "app")
    home = tmp_path / "home"
    home.mkdir()
    with Servers(tmp_path / "servers", plain=True) as servers:
        servers.environment["HOME"] = str(home)  # where the accounts are kept
        servers.superlink("--simulation")
        text = simulate(servers, app, 'algorithm-name="fedaux"', nodes=10)
    accuracies = re.findall(r"^accuracy ([\d.]+)", text, re.MULTILINE)
    assert len(accuracies) == 6
    assert float(accuracies[-1]) > 70
    assert "are (1, 1e-05)-differentially private" in text
    assert list((home / ".fedaux").rglob("release-*.json"))


def releases(home: Path) -> dict[str, str]:
    found = sorted((home / ".fedaux" / "digits-app").glob("client-*/release-*.json"))
    assert all(json.loads(path.read_text())["epsilon"] == 1.0 for path in found)
    return {str(path.relative_to(home)): path.read_text() for path in found}
