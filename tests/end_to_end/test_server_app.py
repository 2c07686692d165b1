"""The server of a Flower run, over the grid in this process: it leaves a run, and the models made of it."""

import json
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict

from fedaux.algorithms.run_lock import LockedError, RunLock
from fedaux.algorithms.run_state import RunState
from fedaux.experiments.server_app import app as server
from fedaux.export.model import Model
from fedaux.flower.client_app import app as clients
from fedaux.flower.in_process import InProcessGrid
from helpers.tiny import MLP, TINY_CONFIG


def test_a_run_leaves_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    config = tmp_path / "run.json"
    config.write_text(json.dumps(TINY_CONFIG.to_dict()))
    grid = InProcessGrid(clients, 3, {"config": config.read_text(), "vault": str(tmp_path / "clients")})
    context = Context(1, 1, {}, RecordDict(), {"config": str(config), "out": str(tmp_path / "run")})
    server(grid, context)
    model = Model.from_pretrained(tmp_path / "run")
    state = RunState.load(tmp_path / "run")
    assert model.card["metrics"]["accuracy"] == state.history[-1].accuracy[MLP.label]
    said = capsys.readouterr().out
    assert f"model: {tmp_path / 'run' / 'model' / 'mlp-0'}" in said
    assert f"report: {tmp_path / 'run' / 'report.html'}" in said
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_second_server_in_the_same_folder_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart of the SuperLink the run was started again while it lived: two servers wrote one folder."""
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    config = tmp_path / "run.json"
    config.write_text(json.dumps(TINY_CONFIG.to_dict()))

    def nobody(*_: object) -> Message:
        raise AssertionError("a site was asked")

    context = Context(1, 1, {}, RecordDict(), {"config": str(config), "out": str(tmp_path / "run")})
    with (
        RunLock(tmp_path / "run"),
        pytest.raises(LockedError, match=r"belongs to a run that goes on: process \d+"),
    ):
        server(InProcessGrid(nobody, 3, {}), context)
    assert not (tmp_path / "run").exists()
