"""On real SuperNodes too, a head of all sites' sums is that of the pooled records, to the bit of a run in process."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import run
from fedaux.server.run_state import RunState
from helpers.harness import Servers
from helpers.three_sites import CONFIG, SITES, Federation


@pytest.mark.slow
def test_sites_send_their_sums_and_then_train_from_their_head(tmp_path: Path) -> None:
    config = replace(CONFIG, method="fedavg+p", head_only=True, head_init="ridge")
    here = run(config, tmp_path / "here", cache=tmp_path / "cache").state
    with Servers(tmp_path / "servers") as servers:
        sites = Federation(tmp_path, servers, config)
        sites.up()
        sites.begin()
        servers.finish()
    there = RunState.load(sites.out)
    assert sorted(there.summed) == SITES
    assert [sorted(result.client_metrics) for result in there.history] == [SITES] * len(there.history)
    for label, arrays in here.sums.items():
        assert all(np.array_equal(array, there.sums[label][name]) for name, array in arrays.items())
        assert np.abs(here.weights[label]["parameters"] - there.weights[label]["parameters"]).max() < 1e-5
