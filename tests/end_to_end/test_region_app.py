"""Regional servers as Flower starts them, over grids in this process, and the one that
merges them.

Each says what it does: of its own sites, or of the regions.
"""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from typer.testing import CliRunner

from fedaux.cli import app as command
from fedaux.data.federated import client_names
from fedaux.flower.client_app import app as clients
from fedaux.flower.in_process import InProcessGrid
from fedaux.runs.region_app import app as region
from fedaux.runs.run_lock import LockedError, RunLock
from fedaux.runs.runner import run_over_regions
from fedaux.runs.status import RunStatus
from fedaux.server import regions
from fedaux.server.regions import RegionSpec
from helpers.audited_sites import with_own_sends
from helpers.harness import Patience
from helpers.tiny import TINY_CONFIG

NAMES = client_names(TINY_CONFIG)
PARTS = [RegionSpec(1, 2), RegionSpec(2, 2)]
one_at_a_time = threading.Lock()


class Grid(InProcessGrid):
    """Clients of one process share a network: no two of them train at once."""

    def _handle(self, message: Message) -> Message:
        with one_at_a_time:
            return super()._handle(message)


def serve(folder: Path, part: RegionSpec, app: Any = clients) -> None:
    settings = {
        "config": json.dumps(with_own_sends(TINY_CONFIG).to_dict()),
        "vault": str(folder / "clients"),
    }
    grid = Grid(app, len(NAMES), settings)
    for node, name in zip(grid.get_node_ids(), NAMES, strict=True):
        if name not in part.clients(NAMES):
            del grid._contexts[node]
    out = {
        "config": str(folder / "run.json"),
        "out": str(folder / "run"),
        "region": f"{part.number}/{part.count}",
    }
    region(grid, Context(1, 1, {}, RecordDict(), out))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    patience = Patience(240)

    def sleep(seconds: float) -> None:
        assert not patience.over(), "another server must have ended"
        time.sleep(seconds)

    monkeypatch.setattr(regions, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "run.json").write_text(json.dumps(TINY_CONFIG.to_dict()))
    return tmp_path


def test_each_says_what_it_does_and_of_its_own_sites(folder: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        serving = [pool.submit(serve, folder, part) for part in PARTS]
        state = run_over_regions(TINY_CONFIG, folder / "run", 2).state
        for one in serving:
            one.result(60)
    accounts = {}
    for part in PARTS:
        status = RunStatus.load(part.folder(folder / "run"))
        assert status is not None
        assert (status.outcome, status.finished_rounds, status.rounds) == (
            "finished",
            2,
            2,
        )
        assert {
            name: site.replies for name, site in status.sites.items()
        } == dict.fromkeys(part.clients(NAMES), 3)
        assert status.bytes_received > 0
        accounts.update({name: site.epsilon for name, site in status.sites.items()})
    assert accounts == {
        name: account.epsilon for name, account in state.accounts.items()
    }
    assert sorted(state.history[-1].client_metrics) == NAMES
    shown = CliRunner().invoke(
        command,
        ["deploy", "status", str(folder / "run"), "--json"],
        catch_exceptions=False,
    )
    found = json.loads(shown.stdout)
    assert (
        shown.exit_code,
        found["state"],
        found["finished_rounds"],
        found["rounds"],
    ) == (0, "finished", 2, 2)
    assert [
        (site["name"], site["replies"], site["connection"]) for site in found["sites"]
    ] == [
        (part.name, 3, "offline")
        for part in PARTS  # its server has ended
    ]
    assert [site["epsilon"] for site in found["sites"]] == [
        max(accounts[name] for name in part.clients(NAMES)) for part in PARTS
    ]


def test_a_second_server_of_a_region_asks_nobody(folder: Path) -> None:
    def nobody(*_: object) -> Message:
        raise AssertionError("a site was asked")

    policy = replace(TINY_CONFIG.federation, connect_timeout=0.1)
    (folder / "run.json").write_text(
        json.dumps(replace(TINY_CONFIG, federation=policy).to_dict())
    )
    with (
        RunLock(PARTS[0].folder(folder / "run")),
        pytest.raises(LockedError, match="belongs to a run that is not finished"),
    ):
        serve(folder, PARTS[0], nobody)
