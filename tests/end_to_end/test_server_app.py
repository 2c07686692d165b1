"""The server of a Flower run, over the grid in this process: it leaves a run, and the
models made of it.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo

from fedaux.core.failures import Refusal
from fedaux.data.federated import client_names
from fedaux.export.model import Model
from fedaux.flower.client_app import app as clients
from fedaux.flower.in_process import InProcessGrid
from fedaux.runs.run_lock import LockedError, RunLock
from fedaux.runs.server_app import app as server
from fedaux.runs.status import RunStatus
from fedaux.server.run_state import RunState
from helpers.audited_sites import with_own_sends
from helpers.tiny import MLP, TINY_CONFIG


def test_a_run_leaves_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    config = tmp_path / "run.json"
    config.write_text(json.dumps(TINY_CONFIG.to_dict()))
    grid = InProcessGrid(
        clients,
        3,
        {
            "config": json.dumps(with_own_sends(TINY_CONFIG).to_dict()),
            "vault": str(tmp_path / "clients"),
        },
    )
    context = Context(
        1, 1, {}, RecordDict(), {"config": str(config), "out": str(tmp_path / "run")}
    )
    server(grid, context)
    model = Model.from_pretrained(tmp_path / "run")
    state = RunState.load(tmp_path / "run")
    assert model.card["metrics"]["accuracy"] == state.history[-1].accuracy[MLP.label]
    said = capsys.readouterr().out
    assert f"model: {tmp_path / 'run' / 'model' / 'mlp-0'}" in said
    assert f"report: {tmp_path / 'run' / 'report.html'}" in said
    assert (tmp_path / "run" / "report.html").is_file()
    status = RunStatus.load(tmp_path / "run")
    assert status is not None
    assert (status.outcome, status.finished_rounds) == ("finished", TINY_CONFIG.rounds)
    assert {name: site.replies for name, site in status.sites.items()} == dict.fromkeys(
        client_names(TINY_CONFIG), TINY_CONFIG.rounds + 1
    )
    assert {name: site.epsilon for name, site in status.sites.items()} == {
        name: account.epsilon for name, account in state.accounts.items()
    }
    assert (status.bytes_sent, status.bytes_received) == (
        sum(result.bytes_sent for result in state.history),
        sum(result.bytes_received for result in state.history),
    )


def test_a_second_server_in_the_same_folder_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the SuperLink the run was started again while it lived: two
    servers wrote one folder.
    """
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    config, policy = (
        tmp_path / "run.json",
        replace(TINY_CONFIG.federation, connect_timeout=0.1),
    )
    config.write_text(json.dumps(replace(TINY_CONFIG, federation=policy).to_dict()))

    def nobody(*_: object) -> Message:
        raise AssertionError("a site was asked")

    context = Context(
        1, 1, {}, RecordDict(), {"config": str(config), "out": str(tmp_path / "run")}
    )
    with (
        RunLock(tmp_path / "run"),
        pytest.raises(
            LockedError, match=r"belongs to a run that is not finished: process \d+"
        ),
    ):
        server(InProcessGrid(nobody, 3, {}), context)
    assert not (tmp_path / "run").exists()


def test_a_vault_from_an_old_backup_answers_no_new_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made fresh noise for the same question: a new run could not know that there
    had been more.
    """
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    policy = replace(TINY_CONFIG.federation, registered_only=True)
    config, vault = (
        replace(TINY_CONFIG, federation=policy, rounds=1),
        tmp_path / "clients",
    )
    (tmp_path / "run.json").write_text(json.dumps(config.to_dict()))
    grid = InProcessGrid(
        clients,
        3,
        {"config": json.dumps(with_own_sends(config).to_dict()), "vault": str(vault)},
    )
    names = client_names(config)
    monkeypatch.setattr(
        grid,
        "get_nodes",
        lambda: [
            NodeInfo(node_id=node, name=name)
            for node, name in zip(grid.get_node_ids(), names, strict=True)
        ],
    )

    def start(folder: str) -> RunState:
        server(
            grid,
            Context(
                1,
                1,
                {},
                RecordDict(),
                {"config": str(tmp_path / "run.json"), "out": str(tmp_path / folder)},
            ),
        )
        return RunState.load(tmp_path / folder)

    assert len(start("first").releases) == 3
    known = json.loads((tmp_path / "accounts.json").read_text())
    assert {name: entries for name, (entries, _) in known.items()} == dict.fromkeys(
        names, 1
    )
    assert len(start("second").releases) == 3  # the same question, the same answer
    shutil.rmtree(vault / names[0])
    state = start("third")
    assert set(state.releases) == set(names[1:])
    assert state.history[0].failures[0].client == names[0]
    assert Refusal.BUDGET.description in state.history[0].failures[0].reason
