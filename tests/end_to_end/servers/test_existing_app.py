"""The example of an app that existed before fedaux runs in Flower's own simulation, with its handler and strategy."""

import json
import re
import shutil
from pathlib import Path

import pytest

from helpers.harness import BIN, Servers

EXAMPLE = Path(__file__).parents[3] / "examples" / "existing-flower-app"


@pytest.mark.slow
def test_an_existing_app_runs_in_flowers_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Flower's simulation needs ray: pip install 'fedaux[simulation]'")
    app, home = shutil.copytree(EXAMPLE, tmp_path / "app"), tmp_path / "home"
    home.mkdir()
    with Servers(tmp_path / "servers", plain=True) as servers:
        servers.environment["HOME"] = str(home)  # where the example keeps its vaults
        servers.superlink("--simulation")
        command = [str(BIN / "flwr"), "run", str(app), "real", "--stream", "--run-config", "rounds=3"]
        nodes = ["--federation-config", "num-supernodes=10 client-resources-num-cpus=1"]
        servers.start("run", *command, *nodes)
        first = servers.finish()
        stored = releases(home)
        servers.start("again", *command, *nodes)
        second = servers.finish("again")
    for text in (first, second):
        accuracies = [float(found) for found in re.findall(r"^accuracy ([\d.]+)", text, re.MULTILINE)]
        assert len(accuracies) == 4
        assert accuracies[-1] > 0.5
        assert "Each of 10 clients keeps its own account of everything that it ever sent under noise" in text
    assert len(stored) == 10
    assert releases(home) == stored  # the second run, under new node ids, was told the same


def releases(home: Path) -> dict[str, str]:
    found = sorted((home / ".fedaux" / "digits-app").glob("client-*/release-*.json"))
    assert all(json.loads(path.read_text())["epsilon"] == 1.0 for path in found)
    return {str(path.relative_to(home)): path.read_text() for path in found}
