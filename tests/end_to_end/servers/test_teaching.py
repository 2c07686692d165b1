"""On real SuperNodes too, sites that run their own models on public data end where a server that does it ends."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import run
from fedaux.config.distillation import TeachersConfig
from fedaux.server.run_state import RunState
from helpers.harness import Servers
from helpers.three_sites import CONFIG as THREE
from helpers.three_sites import SITES, Federation

CONFIG = replace(THREE, privacy=replace(THREE.privacy, unsafe_seed=1))  # noise that two runs can share


@pytest.mark.slow
@pytest.mark.parametrize(("head_only", "examples"), [(False, 0), (True, 100)], ids=["networks", "heads on a part"])
def test_sites_that_teach_themselves_end_in_the_same_weights(head_only: bool, examples: int, tmp_path: Path) -> None:
    config = replace(CONFIG, head_only=head_only, teachers=TeachersConfig(examples=examples))
    here = run(config, tmp_path / "here", cache=tmp_path / "cache").state
    with Servers(tmp_path / "servers") as servers:
        sites = Federation(tmp_path, servers, replace(config, teachers=replace(config.teachers, run_on="clients")))
        sites.up()
        sites.begin()
        servers.finish()
    there = RunState.load(sites.out)
    assert [sorted(result.client_metrics) for result in there.history] == [SITES] * 2
    for label, arrays in here.weights.items():
        for name, array in arrays.items():
            assert np.abs(array - there.weights[label][name]).max() < 1e-5
    assert here.history[-1].distill_loss == pytest.approx(there.history[-1].distill_loss, rel=1e-4)
