"""A look on a SuperLink with three SuperNodes over TLS, and what it leaves behind: in
the statement, in each site's account and log, and in what the server says.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.privacy.account_file import read_account
from fedaux.privacy.accounting import total_epsilon
from fedaux.privacy.site_account import SiteAccount
from fedaux.server.run_state import RunState
from helpers.three_sites import CONFIG as THREE
from helpers.three_sites import SITES, run_to_the_end

CONFIG = replace(
    THREE,
    method="private-head",
    rounds=1,
    data=replace(THREE.data, alpha=10.0, site_test_fraction=0.25),
    privacy=replace(THREE.privacy, look_epsilon=2.0),
)


@pytest.mark.slow
def test_a_look_ends_as_it_was_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDAUX_LOG", str(tmp_path / "events.jsonl"))
    state, log = run_to_the_end(tmp_path, CONFIG)
    lines = (tmp_path / "events.jsonl").read_text("utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    test = state.site_test
    assert test is not None
    assert test.sites == tuple(SITES)
    assert test.failures == ()
    assert RunState.load(tmp_path / "run").site_test == test

    held_out = 0.0
    for name in SITES:
        vault = tmp_path / "vaults" / name
        entries = [entry for entry in read_account(vault)[1] if entry.mechanism.steps]
        assert [entry.kind for entry in entries] == ["release", "look"]
        mechanisms = [entry.mechanism for entry in entries]
        epsilon = total_epsilon(mechanisms, 1e-5, "replace-one")
        assert state.accounts[name].epsilon == epsilon < 3.0  # of 1 and 2
        statement = SiteAccount.read(vault, 1e-5).statement()
        assert "releases: 1, rounds of private training: 0, looks: 1" in statement
        # what was answered is kept, so that the same look costs nothing more
        assert len(list(vault.glob("look-*.json"))) == 1
        answered = [
            event["task"]
            for event in events
            if event["event"] == "order-answered" and event["site"] == name
        ]
        assert answered.count("look") == 1
        counts = test.by_site[name]
        held_out += sum(counts.values["answers"])

    (total,) = test.counts.values()
    assert sum(total.values["answers"]) == pytest.approx(held_out)
    noise = total.deviation["answers"]
    # digits without public and test records
    assert abs(held_out - 0.25 * sum(state.records.values()) / 0.75) < 8 * noise

    assert "the counts of held-out records" in state.ledger.statement()
    for line in (
        "noisy counts: 3/3",
        "Tested at 3 sites, on held-out records: accuracy",
        "Learning cost ε = 1, the look ε = 2, and both together ε = ",
    ):
        assert line in log
