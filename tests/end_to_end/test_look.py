"""A look at the sites' data before a run: counts under noise of what the sites have, by
sites that are asked, alone or in a secure sum.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux import Config
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    FederationConfig,
    PrivacyConfig,
)
from fedaux.core.failures import Failure, Refusal
from fedaux.core.noisy_counts import NoisyCount
from fedaux.core.progress import OnProgress, OwnersAwaited, ProgressEvent, report_to
from fedaux.data.table_schema import TableSchema
from fedaux.messages import Counts, Reply, Tallies, Tally
from fedaux.messages.tallies import MAX_EDGES
from fedaux.messages.types import MAX_JSON
from fedaux.privacy.roster import make_signing_key, write_roster
from fedaux.privacy.site_account import SiteAccount
from fedaux.runs.look import look_in_folder
from fedaux.runs.look_plan import plan_data_look
from fedaux.server.agreement import ConsentError
from fedaux.server.data_figures import figures_by_site, figures_of_all
from fedaux.server.data_look import DataLook, empty_state
from fedaux.server.run_state import StateError
from fedaux.server.server import Server, make_server
from helpers.own_sites import NAMES, OwnSites

SCHEMA = """
label = "ill"
classes = ["no", "yes"]
confirmed = true
[columns]
age = {kind = "number", range = [20, 90]}
pain = {kind = "category", values = ["none", "typical"]}
"""
RECORDS = 2_000  # of each site
CLASSES = ("no", "yes")


def rows_of(site: int) -> list[tuple[str, str, str]]:
    """Ages around 55, a tenth of them missing; the last site has nobody who is ill."""
    rng = np.random.default_rng(site)
    rows = []
    for _ in range(RECORDS):
        age = f"{rng.normal(55, 10):.0f}" if rng.random() > 0.1 else ""
        pain = str(rng.choice(["none", "typical", "strange"], p=[0.6, 0.3, 0.1]))
        is_ill = site < 2 and rng.random() < 0.5
        rows.append((age, pain, CLASSES[is_ill]))
    return rows


def write_table(path: Path, rows: Sequence[Sequence[str]]) -> None:
    lines = [",".join(row) for row in [("age", "pain", "ill"), *rows]]
    path.write_text("\n".join(lines))


def table_sites(folder: Path, **federation: Any) -> OwnSites:
    """Three sites with a table each, whose owners list what a private head needs."""
    schema = folder / "schema.toml"
    schema.write_text(SCHEMA)
    write_table(folder / "test.csv", rows_of(3)[:20])
    data = DataConfig(
        "table",
        str(folder / "test.csv"),
        options=(("schema", str(schema)),),
        classes=CLASSES,
        partition="own",
    )
    settings = FederationConfig(sites=NAMES, **federation)
    config = Config(
        method="private-head",
        prototypes=(PrototypeSpec("linear"),),
        data=data,
        aux=AuxConfig("schema", str(schema)),
        privacy=PrivacyConfig(look_epsilon=1.0),
        federation=settings,
    )
    words = ("noisy sums", "noisy counts")
    sites = OwnSites(folder, config)
    for number, name in enumerate(NAMES):
        (folder / name).mkdir()
        path = folder / name / "records.csv"
        write_table(path, rows_of(number))
        own = replace(data, path=str(path))
        asked = replace(settings, sends=words, approval="ask")
        sites.own[name] = replace(config, data=own, federation=asked)
    roster = {name: make_signing_key(sites.vault(name)) for name in NAMES}
    for home in (folder, *map(sites.vault, NAMES)):
        write_roster(home / "roster.json", roster)
    return sites


def server_of(sites: OwnSites) -> Server:
    return make_server(sites.config, sites.folder / "cache")


def owners(sites: OwnSites) -> OnProgress:
    def decide(event: ProgressEvent) -> None:
        if isinstance(event, OwnersAwaited):
            for name in event.sites:
                sites.approve(name)

    return decide


def look(sites: OwnSites, folder: str = "look") -> DataLook:
    home = sites.folder / folder
    home.mkdir(exist_ok=True)
    with report_to(owners(sites)):
        return look_in_folder(home, server_of(sites), sites.federation(None))


def near(count: NoisyCount, exact: int) -> bool:
    return abs(count.value - exact) < 6 * count.noise


@pytest.mark.parametrize("secure", [True, False])
def test_sites_count_their_tables_under_noise(secure: bool, tmp_path: Path) -> None:
    sites = table_sites(tmp_path, secure=secure)
    found = look(sites)
    figures = figures_of_all(found)
    rows = [row for site in range(3) for row in rows_of(site)]
    assert figures.sites == tuple(sorted(NAMES))
    assert near(figures.records, 3 * RECORDS)
    ill = sum(row[2] == "yes" for row in rows)
    assert dict(figures.classes).keys() == {"no", "yes"}
    assert near(dict(figures.classes)["yes"], ill)
    assert near(figures.unlabelled, 0)
    age, pain = figures.columns
    assert near(age.missing, sum(row[0] == "" for row in rows))
    assert near(
        dict(pain.bins)["another value"], sum(row[1] == "strange" for row in rows)
    )
    median = age.quantiles[0.5]
    assert median.low <= 55 <= median.high
    assert figures.records.noise < 35

    planned = plan_data_look(sites.config)
    assert figures.records.half == pytest.approx(planned.half_width_of_all)
    bins = [figures.unlabelled, age.missing, pain.missing]
    assert max(count.half for count in bins) == pytest.approx(planned.half_width)

    by_site = {site.name: site for site in figures_by_site(found)}
    assert set(by_site) == (set() if secure else set(NAMES))
    if not secure:  # nobody is ill at one site, and its interval says so
        assert dict(by_site["west"].classes)["yes"].low == 0
        assert dict(by_site["north"].classes)["yes"].low > 500

    for name in NAMES:
        assert [entry.kind for entry in sites.entries(name)] == ["look"]
        statement = SiteAccount.read(sites.vault(name), 1e-5).statement()
        assert "looks: 1) costs at most ε = 1" in statement
        log = sites.log(name).entries()
        assert log[0].facts["leaves"] == "noisy counts at ε = 1, δ = 1e-05"
        assert [entry.event for entry in log][-2:] == ["begun", "answered"]
    assert found.counted.total is not None
    assert 0.99 < found.counted.total <= 1.0

    home = tmp_path / "look"
    facts = json.loads((home / "look.json").read_text())
    assert facts["all_sites"] == json.loads(json.dumps(figures.to_dict()))
    page = (home / "report.html").read_text("utf-8")
    assert ("Nobody knows the counts of one site" in page) == secure
    schema = TableSchema.load(home / "schema.toml")
    assert len(schema.columns["age"].quantiles) == 11
    assert schema.columns["age"].missing
    assert not schema.columns["pain"].missing

    # what is there is not asked for again, and a question gets the same answer
    assert look(sites) == found
    if not secure:
        assert look(sites, "again").counts == found.counts
    assert all(len(sites.entries(name)) == 1 for name in NAMES)
    bins = replace(sites.config.data, look_bins=4)
    sites.config = replace(sites.config, data=bins)
    with pytest.raises(StateError, match="holds another look"):
        look(sites)


def test_a_site_that_does_not_list_counts_stays_out(tmp_path: Path) -> None:
    sites = table_sites(tmp_path, quorum=0.5)
    own = sites.own["south"]
    federation = replace(own.federation, sends=("noisy sums",))
    sites.own["south"] = replace(own, federation=federation)
    found = look(sites)
    assert found.counts.sites == ("north", "west")
    (failure,) = found.counted.failures
    assert failure.client == "south"
    assert sites.entries("south") == []
    page = (tmp_path / "look" / "report.html").read_text("utf-8")
    assert "These sites, or sums, have not counted" in page


def test_a_secure_sum_without_enough_sites_is_none(tmp_path: Path) -> None:
    """Nothing has left the others either: too few sites take part in the plan."""
    sites = table_sites(tmp_path, secure=True)
    for name in ("south", "west"):
        own = sites.own[name]
        privacy = replace(own.privacy, look_epsilon=0.0)
        federation = replace(own.federation, sends=("noisy sums",))
        sites.own[name] = replace(own, privacy=privacy, federation=federation)
    with pytest.raises(ConsentError, match="1 of 3 sites take part"):
        look(sites)
    assert [sites.entries(name) for name in NAMES] == [[], [], []]


def test_a_site_with_another_schema_stays_out(tmp_path: Path) -> None:
    sites = table_sites(tmp_path, quorum=0.5)
    other = tmp_path / "other.toml"
    other.write_text(SCHEMA.replace("[20, 90]", "[0, 90]"))
    own = sites.own["south"]
    data = replace(own.data, options=(("schema", str(other)),))
    sites.own["south"] = replace(own, data=data)
    found = look(sites)
    assert found.counts.sites == ("north", "west")


def answer_to(sites: OwnSites, tally: Tally) -> Reply:
    """Return what a site answers to a look that it needs no approval for."""
    for name, own in sites.own.items():
        federation = replace(own.federation, approval="none")
        sites.own[name] = replace(own, federation=federation)
    server = server_of(sites)
    tallies = Tallies({"odd": tally})
    order = server.orders.look_at_data(empty_state(server), "north", tallies)
    (reply,) = sites.federation(None).ask([order])
    return reply


def test_columns_that_a_site_does_not_have_are_refused_before_the_account(
    tmp_path: Path,
) -> None:
    """An order that fails half-way would have been paid for."""
    sites = table_sites(tmp_path)
    odd = [
        Tally("column", column="height", edges=(1.0,)),
        Tally("column", column="pain", values=("strange",)),
    ]
    for tally in odd:
        reply = answer_to(sites, tally)
        assert isinstance(reply, Failure)
        assert reply.kind == Refusal.ORDER
    assert sites.entries("north") == []


def test_bins_without_end_are_refused_before_the_account(tmp_path: Path) -> None:
    """10,000 edges fit into an order, and no order needs them."""
    sites = table_sites(tmp_path)
    edges = tuple(range(10_000))
    tally = Tally("column", column="age", edges=edges)
    assert len(Tallies({"odd": tally}).to_json()) < MAX_JSON
    reply = answer_to(sites, tally)
    assert isinstance(reply, Failure)
    assert reply.kind == Refusal.ORDER
    assert sites.entries("north") == []
    edges = tuple(range(MAX_EDGES))
    reply = answer_to(sites, Tally("column", column="age", edges=edges))
    assert isinstance(reply, Counts)
