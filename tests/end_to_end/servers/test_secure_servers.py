"""Secure sums on a SuperLink with three SuperNodes over TLS, each with a key of its own
and the roster of all.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config, run
from fedaux.config.distillation import TeachersConfig
from fedaux.privacy.account_file import read_account
from fedaux.privacy.roster import make_signing_key, write_roster
from helpers import recorded_releases
from helpers.three_sites import CONFIG as THREE
from helpers.three_sites import SITES, run_to_the_end


def with_roster(folder: Path) -> None:
    roster = {name: make_signing_key(folder / "vaults" / name) for name in SITES}
    for home in (folder, *(folder / "vaults" / name for name in SITES)):
        write_roster(home / "roster.json", roster)


def secure(config: Config) -> Config:
    return replace(
        config, federation=replace(config.federation, secure=True, sites=tuple(SITES))
    )


# in the gate, sums are made in process and messages travel on servers
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"method": "ridge+p"}, {"method": "fedavg+p", "head_init": "ridge"}],
    ids=["head", "models"],
)
def test_the_head_and_the_models_are_those_of_a_server_that_sees_everything(
    settings: dict[str, str], tmp_path: Path
) -> None:
    """The sums of all sites' features make the head, from which training starts in the
    second run.
    """
    config = replace(THREE, head_only=True, rounds=1, **settings)
    here = run(config, tmp_path / "here", cache=tmp_path / "cache").state
    with_roster(tmp_path)
    there, log = run_to_the_end(tmp_path, secure(config))
    assert [sorted(result.client_metrics) for result in there.history] == [
        SITES
    ] * config.rounds
    for label, arrays in here.sums.items():
        assert all(
            np.array_equal(array, there.sums[label][name])
            for name, array in arrays.items()
        )
    for label, arrays in here.weights.items():
        for name, array in arrays.items():  # in process, heads train as one stack
            assert np.abs(array - there.weights[label][name]).max() < 1e-5
    assert "secure sum" in log


@pytest.mark.slow
def test_fedaux_with_noise_that_the_sites_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_roster(tmp_path)
    (tmp_path / "added").mkdir()
    monkeypatch.setenv(recorded_releases.FOLDER, str(tmp_path / "added"))
    config = replace(
        THREE, head_init="private-head", teachers=TeachersConfig(run_on="clients")
    )
    there, _ = run_to_the_end(
        tmp_path, secure(config), client="helpers.recorded_releases:app"
    )
    assert sorted(there.summed) == SITES
    assert there.history[-1].distill_loss is not None
    values = []
    for name in SITES:
        home = tmp_path / "vaults" / name
        assert sum(entry.mechanism.steps > 0 for entry in read_account(home)[1]) == 1
        assert not list(home.glob("release-*.json"))  # with a share of the noise alone
        values.append(json.loads((tmp_path / "added" / f"{name}.json").read_text()))
    (pooled,) = there.pooled.values()
    assert np.array_equal(pooled.arrays["values"], np.sum(values, axis=0))
    assert (
        "against the server and up to 1 of 3 sites together" in there.ledger.statement()
    )
