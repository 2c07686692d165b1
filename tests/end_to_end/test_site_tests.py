"""The final model is tested at the sites: on records that they hold out, under ε of its
own, by sites that are asked, alone or in a secure sum.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import fedaux
from fedaux import Config
from fedaux.client import looks as client_looks
from fedaux.client.held_out import split_of
from fedaux.client.own_figures import OwnFigures
from fedaux.client.site import Site
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.noisy_metrics import estimates
from fedaux.core.progress import OwnersAwaited, ProgressEvent
from fedaux.core.results import NoisyCounts
from fedaux.data.federated import open_private
from fedaux.messages import Federation, LookOrder, Order, Reply
from fedaux.privacy.account_file import read_account
from fedaux.privacy.accounting import total_epsilon
from fedaux.privacy.site_account import SiteAccount
from fedaux.runs.look_plan import plan_look
from fedaux.runs.status import RunStatus
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState
from fedaux.server.site_figures import describe_cost_of_look, describe_site_test
from helpers.own_sites import NAMES, OwnSites

HEADS = Config(
    method="private-head",
    rounds=1,
    prototypes=(PrototypeSpec.of("mlp", hidden=16, features=8),),
    data=DataConfig(clients=3, alpha=10.0, site_test_fraction=0.25),
    aux=AuxConfig(fraction=0.5),
    pretrain=PretrainConfig(epochs=0),
    privacy=PrivacyConfig(epsilon=1.0, look_epsilon=2.0, embedding_dim=8),
)
SECURE = replace(HEADS, federation=FederationConfig(secure=True))
NETWORKS = replace(
    HEADS, method="fedavg", local=LocalConfig(epochs=1, lr=0.01, optimizer="adam")
)


@dataclass
class Looked:
    """A federation that remembers the looks that it was asked for."""

    federation: Federation
    looks: list[LookOrder]

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        self.looks += [order for order in orders if isinstance(order, LookOrder)]
        yield from self.federation.ask(orders)


def exact_answers(sites: OwnSites) -> tuple[int, int]:
    """What all sites hold out, and how many of these the model answers rightly, by the
    figures that they keep for themselves.
    """
    records = 0
    right = 0.0
    for name in NAMES:
        (figures,) = OwnFigures.read_all(sites.vault(name))
        records += figures.records
        right += figures.records * figures.federation
    return records, round(right)


def held_out_at(sites: OwnSites) -> OwnSites:
    """The same sites, whose owners hold out a quarter of their records."""
    data = replace(sites.config.data, site_test_fraction=0.25)
    sites.config = replace(sites.config, data=data)
    for name, own in sites.own.items():
        data = replace(own.data, site_test_fraction=0.25)
        sends = ("noisy sums", "models", "noisy counts")
        federation = replace(own.federation, sends=sends)
        sites.own[name] = replace(own, data=data, federation=federation)
    return sites


def assert_noise_was_planned(config: Config, counts: NoisyCounts, records: int) -> None:
    """Compare the noise of a look with that of its plan, as if 80 % were right."""
    privacy = config.privacy
    sites = len(NAMES)
    plan = plan_look(records, sites, 10, privacy, config.federation, 8)
    exact = {
        "answers": [0.2 * records, 0.8 * records],
        "hits": [0.02 * records, 0.08 * records] * 10,
    }
    found = estimates(exact, counts.deviation)["accuracy"]
    planned = plan.noise if config.federation.secure else plan.noise_apart
    assert planned is not None
    # the figure's own is that of many draws
    assert found.noise == pytest.approx(planned, rel=0.05)


@pytest.mark.parametrize("config", [HEADS, SECURE, NETWORKS])
def test_sites_count_under_noise_what_they_see_exactly(
    config: Config, tmp_path: Path
) -> None:
    looks: list[LookOrder] = []
    sites = held_out_at(OwnSites.of(tmp_path, config, approval="ask"))

    def owners(event: ProgressEvent) -> None:
        if isinstance(event, OwnersAwaited):
            for name in NAMES:
                sites.approve(name)

    def wrap(federation: Federation) -> Federation:
        return Looked(federation, looks)

    status = RunStatus.start(sites.config, None, 0.0)

    def listener(event: ProgressEvent) -> None:
        status.update(event, 1.0)
        owners(event)

    state = sites.run(wrap, listener)
    test = state.site_test
    assert test is not None
    assert test.sites == tuple(sorted(NAMES))
    (counts,) = test.counts.values()
    records, right = exact_answers(sites)
    wrong, rightly = counts.values["answers"]
    noise = counts.deviation["answers"]
    assert abs(rightly - right) < 6 * noise
    assert abs(wrong - (records - right)) < 6 * noise
    assert_noise_was_planned(config, counts, records)
    # noise that is added once for a sum, and once at each site otherwise
    assert len(test.by_site) == (0 if config is SECURE else 3)

    heads = config is not NETWORKS
    for name, record in status.sites.items():
        assert record.epsilon == state.accounts[name].epsilon
        assert record.epsilon_look == 2.0
        assert record.epsilon_before_look == (test.total_before or 0.0)

    for name in NAMES:
        kinds = [entry.kind for entry in sites.entries(name)]
        assert kinds == (["release", "look"] if heads else ["look"])
        (figures,) = OwnFigures.read_all(sites.vault(name))
        assert (figures.alone is not None) == heads
        site = Site(sites.own[name], sites.vault(name), (name,))
        everything, _ = open_private(sites.own[name], name)
        trained, held_out = split_of(site, name, everything)
        assert len(held_out) == figures.records == round(0.25 * len(everything))
        mechanisms = [entry.mechanism for entry in sites.entries(name)]
        epsilon = total_epsilon(mechanisms, 1e-5, "replace-one")
        assert state.accounts[name].epsilon == epsilon <= 3.0
        statement = SiteAccount.read(sites.vault(name), 1e-5).statement()
        assert "looks: 1) costs at most" in statement
        facts = [entry.facts.get("kind") for entry in sites.log(name).entries()]
        assert facts.count("look") == 2  # begun and answered
        if config is HEADS:  # a secure sum tells a noisy mean
            assert state.records[name] == len(trained)

    # the run is over: a server that starts again asks nothing
    asked = len(looks)
    again = sites.run(wrap, owners)
    assert again.site_test == RunState.load(tmp_path / "run").site_test == test
    assert len(looks) == asked
    table = FinishedRun(again, tmp_path / "run").to_dict()
    assert table["site_test"]["epsilon"]["look"] == 2.0
    assert "counts of held-out records" in again.ledger.statement()
    assert "Tested at 3 sites" in describe_site_test(test)
    words = "the look ε = 2" if heads else "learning was not under noise"
    assert words in describe_cost_of_look(test)


def test_a_site_that_does_not_allow_counts_stays_out(tmp_path: Path) -> None:
    sites = OwnSites.of(tmp_path, HEADS)
    sites.config = replace(
        sites.config, data=replace(sites.config.data, site_test_fraction=0.25)
    )
    for name, own in sites.own.items():
        data = replace(own.data, site_test_fraction=0.25)
        sends = ("noisy sums",) if name == "south" else ("noisy sums", "noisy counts")
        federation = replace(own.federation, sends=sends)
        sites.own[name] = replace(own, data=data, federation=federation)
    state = sites.run()
    assert state.site_test is not None
    assert state.site_test.sites == ("north", "west")
    assert [entry.kind for entry in sites.entries("south")] == ["release"]
    assert not OwnFigures.read_all(sites.vault("south"))
    (failure,) = state.site_test.failures
    assert failure.client == "south"


@pytest.mark.parametrize("secure", [False, True])
def test_two_classes_from_python(secure: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    x = rng.normal(0, 1, (4000, 6)).astype(np.float32)
    x[:, 0] += 2.0 * y
    result = fedaux.run(
        "private-head",
        data=(x, y),
        public=rng.normal(0, 1.5, (500, 6)).astype(np.float32),
        clients=3,
        partition="iid",
        site_test_fraction=0.3,
        look_epsilon=1.0,
        epsilon=1.0,
        secure=secure,
        seed=1,
        folder=tmp_path / "run",
    )
    (network,) = result.site_figures
    assert set(network.figures) >= {"accuracy", "balanced_accuracy", "auc"}
    for name, figure in network.figures.items():
        assert figure.low <= figure.value <= figure.high, name
    accuracy = network.figures["accuracy"]
    # the same model on the server's own test data
    assert abs(accuracy.value - result.accuracy) < 0.06
    assert "Tested at 3 sites" in repr(result)
    page = result.write_report().read_text("utf-8")
    section = page.partition('id="sites"')[2].partition("</section>")[0]
    assert "Test at the sites" in section
    # of a secure sum, nobody knows what a single site counted
    assert ("client-000" in section) != secure
    card = result.model.card["metrics"]["tested_at_sites"]
    assert card["figures"]["accuracy"]["value"] == accuracy.value


@pytest.mark.parametrize("config", [HEADS, SECURE])
def test_own_figures_come_after_the_answer_is_stored(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever kills a site while it trains a model for its owner leaves no open
    entry.
    """
    sites = held_out_at(OwnSites.of(tmp_path, config))
    seen: list[str] = []

    def stop(order: LookOrder, site: Site, *_: object) -> None:
        _, entries = read_account(sites.vault(order.client))
        states = [entry.state for entry in entries if entry.looks]
        assert states == ["entered", "stored"]
        with (sites.vault(order.client) / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it
        seen.append(order.client)
        raise KeyboardInterrupt

    monkeypatch.setattr(client_looks, "keep_own_figures", stop)
    with pytest.raises(KeyboardInterrupt):
        sites.run()
    monkeypatch.undo()
    state = sites.run()
    assert state.site_test is not None
    assert state.site_test.sites == tuple(sorted(NAMES))
    assert seen
    for name in NAMES:
        kinds = [entry.kind for entry in sites.entries(name)]
        assert kinds == ["release", "look"]
