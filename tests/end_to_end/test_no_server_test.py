"""A server without test data: rounds have no accuracy, and the sites test the final
model.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux import Config
from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.progress import RoundFinished
from fedaux.data.federated import open_public
from fedaux.deploy.preflight import check_steps
from fedaux.privacy.accounting import round_up
from fedaux.privacy.site_account import SiteAccount
from fedaux.report.arms import group
from fedaux.report.progress import describe
from fedaux.runs.dry_run import dry_run
from fedaux.runs.result import Result
from fedaux.server.run_state import StateError
from fedaux.server.site_figures import describe_cost_of_look
from helpers.deployments import fine
from helpers.own_sites import NAMES, OwnSites

CONFIG = Config(
    method="private-head",
    rounds=1,
    prototypes=(PrototypeSpec.of("mlp", hidden=64, features=32),),
    data=DataConfig(clients=3, alpha=10.0, site_test_fraction=0.3),
    aux=AuxConfig(fraction=0.5),
    pretrain=PretrainConfig(epochs=0),
    privacy=PrivacyConfig(epsilon=8.0, look_epsilon=2.0, embedding_dim=16),
)


def without_test(folder: Path) -> OwnSites:
    """Real sites that hold out records, and a server that names no test data."""
    sites = OwnSites.of(folder, CONFIG)
    data = replace(sites.config.data, path="", site_test_fraction=0.3)
    sites.config = replace(sites.config, data=data)
    for name, own in sites.own.items():
        held_out = replace(own.data, site_test_fraction=0.3)
        sends = ("noisy sums", "noisy counts")
        federation = replace(own.federation, sends=sends)
        sites.own[name] = replace(own, data=held_out, federation=federation)
    return sites


def test_only_the_sites_test_the_model(tmp_path: Path) -> None:
    sites = without_test(tmp_path)
    result = Result(sites.run(), tmp_path / "run")
    (last,) = result.state.history
    assert last.accuracy == last.start == {}
    assert last.mean_accuracy is None
    assert result.curve == []
    (network,) = result.site_figures
    accuracy = network.figures["accuracy"]
    assert network.sites == tuple(sorted(NAMES))
    assert accuracy.low < result.accuracy == accuracy.value < accuracy.high
    assert 0.3 < accuracy.value < 1.0  # chance is 0.1

    # whatever is said of the run
    line = describe(RoundFinished(last, 1, ""))
    assert line.startswith("round 1/1: not tested at the server, 3 clients")
    assert f"accuracy {100 * accuracy.value:.1f} % at the sites after 1 round" in repr(
        result
    )
    assert "<img" not in result._repr_html_()
    table = json.loads(json.dumps(result.to_dict()))
    assert (table["accuracy"], table["curve"]) == (accuracy.value, [])
    page = result.write_report().read_text("utf-8")
    assert "The server has no test data" in page
    assert "Test at the sites" in page
    with pytest.raises(StateError, match="the server has no test data"):
        result.plot()
    with pytest.raises(StateError, match="Cannot compare"):
        group([result.folder])

    metrics = result.model.card["metrics"]
    assert "accuracy" not in metrics
    assert metrics["tested_at_sites"]["figures"]["accuracy"]["value"] == accuracy.value
    readme = (result.save(tmp_path / "model") / "README.md").read_text("utf-8")
    assert "none at the server" in readme
    assert "The server had no test data" in readme

    # ε of learning and of the look, apart, wherever ε is shown
    test = result.state.site_test
    assert test is not None
    privacy = result.model.card["privacy"]
    assert privacy["epsilon_of_learning"] == test.total_before
    assert privacy["epsilon_of_look"] == 2.0
    assert describe_cost_of_look(test) == privacy["look"]
    assert f"\n\n{privacy['look']}\n\n" in readme
    for name in NAMES:
        account = SiteAccount.read(sites.vault(name), 1e-5)
        assert account.epsilon_of_learning() == test.total_before
        assert account.epsilon_of_looks() == pytest.approx(2.0, rel=1e-3)
        assert account.epsilon == test.total
        apart = (
            f"Alone, looks cost ε = 2, and learning ε = {round_up(test.total_before)}."
        )
        assert apart in account.statement()

    found = dry_run(sites.config, tmp_path / "cache").found
    assert "tested at the sites, at ε = 2" in found["test"]
    assert "test" not in found["duplicates"]


def test_somebody_must_test(tmp_path: Path) -> None:
    sites = without_test(tmp_path)
    data = replace(sites.config.data, site_test_fraction=0.0)
    neither = replace(sites.config, data=data)
    with pytest.raises(ConfigError, match=r"data\.path.*data\.site_test_fraction"):
        open_public(neither)
    public = open_public(sites.config)
    assert len(public.test) == 0
    assert public.test.shape == public.aux.shape
    assert public.test.labels.tolist() == []
    fine(check_steps(sites.config), "no test records: the final model is tested at")
    # no source is no test data either
    unnamed = replace(sites.config, data=replace(sites.config.data, source=""))
    assert len(open_public(unnamed).test) == 0
