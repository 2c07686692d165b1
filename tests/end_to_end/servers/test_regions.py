"""Two SuperLinks, each with half of the SuperNodes, below one merging server: the bits
of a single server.
"""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaux import run as run_here
from fedaux.runs.status import RunStatus
from fedaux.server.preparation import initial_state
from fedaux.server.run_state import RunState
from fedaux.server.server import make_server
from helpers.audited_sites import with_own_sends
from helpers.harness import BIN, Servers, wait_for
from helpers.three_sites import CONFIG as THREE

CONFIG = replace(
    THREE,
    data=replace(THREE.data, clients=4),
    privacy=replace(THREE.privacy, unsafe_seed=1),  # noise that two runs can share
)
CLIENTS = [f"client-{number:03d}" for number in range(4)]


def start(servers: Servers, clients: list[str]) -> None:
    servers.superlink()
    site = servers.folder / "site.json"
    site.write_text(json.dumps(with_own_sends(CONFIG).to_dict()))
    for client in clients:
        servers.node(
            client,
            {
                "config": str(site),
                "vault": str(servers.folder / "vaults"),
                "clients": client,
            },
        )


def check_same(folder: Path, out: Path) -> None:
    """A run of the same clients in this process has the same weights, to the bit, and
    they have learned something.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the servers have
    here, there = (
        run_here(CONFIG, folder / "here", cache=folder / "cache").state,
        RunState.load(out),
    )
    torch.set_num_threads(threads)
    before = initial_state(make_server(CONFIG, cache=folder / "cache")).weights
    for label, arrays in here.weights.items():
        for name, array in arrays.items():
            assert np.array_equal(array, there.weights[label][name]), (label, name)
        assert np.abs(arrays["parameters"] - before[label]["parameters"]).max() > 1e-2
    for mine, theirs in zip(here.history, there.history, strict=True):
        assert sorted(theirs.client_metrics) == CLIENTS
        assert mine.accuracy == theirs.accuracy
        assert (mine.distill_loss, mine.effective_teachers) == (
            theirs.distill_loss,
            theirs.effective_teachers,
        )
        assert mine.bytes_received == theirs.bytes_received


@pytest.mark.slow
def test_two_superlinks_and_one_merge_give_the_bits_of_one_process(
    tmp_path: Path,
) -> None:
    config, out = tmp_path / "config.json", tmp_path / "run"
    config.write_text(json.dumps(CONFIG.to_dict()))
    regions = {"1/2": CLIENTS[:2], "2/2": CLIENTS[2:]}
    with ExitStack() as stack:
        merging, *regional = (
            stack.enter_context(Servers(tmp_path / name, plain=True, database=False))
            for name in ("all", "one", "two")
        )
        for servers, (region, clients) in zip(regional, regions.items(), strict=True):
            start(servers, clients)
            servers.run(config, out, server="fedaux.runs.region_app:app", region=region)
        merging.start(
            "run",
            str(BIN / "fedaux"),
            "run",
            str(config),
            "--out",
            str(out),
            "--regions",
            "2",
            "--json",
        )
        run = merging.processes["run"]
        wait_for(
            lambda: run.poll() is not None,
            240,
            "the merging server has not ended",
            merging,
            "run",
        )
        assert run.returncode == 0, merging.log("run") + regional[0].log("run")
        status = RunStatus.load(out)
        assert status is not None
        assert (status.outcome, status.finished_rounds) == ("finished", 2)
        assert {name: site.replies for name, site in status.sites.items()} == {
            "1of2": 3,
            "2of2": 3,
        }
        for servers in regional:
            servers.until(r"all rounds are done")
    check_same(tmp_path, out)


@pytest.mark.slow
def test_so_does_one_superlink(tmp_path: Path) -> None:
    config, out = tmp_path / "config.json", tmp_path / "run"
    config.write_text(json.dumps(CONFIG.to_dict()))
    with Servers(tmp_path / "one", plain=True, database=False) as servers:
        start(servers, CLIENTS)
        servers.run(config, out)
        servers.finish()
    check_same(tmp_path, out)
