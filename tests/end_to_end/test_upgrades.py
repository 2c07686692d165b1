"""One version back: a run that it began goes on, and sites that have it still take part."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import resume
from fedaux.algorithms.run_state import FILE, START, VERSION, RunState, read
from fedaux.algorithms.server import make_server
from fedaux.config.sections import FederationConfig
from fedaux.core.messages import Account
from fedaux.experiments.runner import run_in_folder
from fedaux.flower.client_app import app
from fedaux.flower.in_process import Handler, InProcessGrid
from fedaux.flower.node_settings import _dump
from fedaux.flower.server_app import connect
from helpers.previous_version import FOLDER, as_previous
from helpers.tiny import TINY_CONFIG


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """FedAUX-SCAFFOLD after the first of two rounds, with its clients' vaults, as the version before left it."""
    shutil.copytree(FOLDER / "cache", tmp_path / "cache")
    return Path(shutil.copytree(FOLDER / "run", tmp_path / "run"))


def test_a_run_of_the_version_before_goes_on_to_the_result_that_it_would_have_had(folder: Path) -> None:
    """With the releases that were made, and with the control variates that its clients have kept under its id."""
    before = RunState.load(folder)
    assert (before.round, len(before.releases), len(before.history)) == (1, 3, 1)
    assert set(before.accounts.values()) == {Account(0.0999998904714653, 1e-5, "replace-one", "record", 1)}
    (kept,) = (folder / "clients" / "client-000").glob("state-*")
    result = resume(folder, cache=folder.parent / "cache")
    _, finished = read(FOLDER / "finished.safetensors")
    for room in ("weights", "method_state"):
        for label, arrays in finished[room].items():
            for name, array in arrays.items():
                np.testing.assert_allclose(getattr(result.state, room)[label][name], array, rtol=1e-4, atol=1e-6)
    assert [path.name for path in (folder / "clients" / "client-000").glob("state-*")] == [kept.name]
    for name in (FILE, START):
        assert version(folder / name) == VERSION


def version(path: Path) -> str:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return str(file.metadata()["version"])


def sites(apps: dict[str, Handler], settings: str, vaults: Path) -> InProcessGrid:
    """A node for each of these sites, all with the same settings."""

    def handle(message: object, context: object) -> object:
        name = list(apps)[int(context.node_config["partition-id"])]  # type: ignore[attr-defined]
        context.node_config["clients"] = name  # type: ignore[attr-defined]
        return apps[name](message, context)  # type: ignore[arg-type]

    return InProcessGrid(handle, len(apps), {"config": settings, "vault": str(vaults)})  # type: ignore[arg-type]


def test_a_server_works_with_sites_of_both_versions(tmp_path: Path) -> None:
    """Those of the version before refuse whatever it would not have sent them, and get the same model."""
    names = ("client-000", "client-001", "client-002")
    privacy = replace(TINY_CONFIG.privacy, unsafe_seed=1)  # the same noise twice
    config = replace(TINY_CONFIG, privacy=privacy, federation=FederationConfig(sites=names, connect_timeout=5))
    weights, accounts = [], []
    for case, old in {"all new": (), "mixed": names[:2], "all old": names}.items():
        apps = {name: as_previous(app) if name in old else app for name in names}
        server = make_server(config, cache=tmp_path / "cache")
        grid = sites(apps, _dump(replace(config, federation=FederationConfig())), tmp_path / case / "vaults")
        result = run_in_folder(tmp_path / case, server, connect(grid, server), None)
        assert not [round_.failures for round_ in result.state.history if round_.failures]
        weights.append(result.state.weights)
        accounts.append([bool(result.state.accounts[name].signature) for name in names])
    assert accounts == [[True] * 3, [False, False, True], [False] * 3]
    for other in weights[1:]:
        for label, arrays in weights[0].items():
            assert all(np.array_equal(arrays[name], other[label][name]) for name in arrays)
