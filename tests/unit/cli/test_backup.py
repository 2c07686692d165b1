"""`fedaux deploy backup`, `restore` and `write-off`: a vault is copied, put back, and
given up where it is too old.
"""

import json
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import Mechanism
from helpers.accounts import enter
from helpers.commands import fedaux
from helpers.deployments import deploy


@pytest.fixture
def site(place: Path) -> Path:
    return deploy(place / "hospitals") / "sites" / "berlin"


def spend(site: Path, request: str) -> None:
    store = BudgetStore(site / "vault", Config.load(site / "site.toml").privacy)
    enter(store, request, Mechanism(99.0))


def test_an_old_vault_comes_back_and_what_it_misses_is_written_off(
    site: Path,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spend(site, "x")
    assert fedaux(monkeypatch, "deploy", "backup", site, "berlin.tar.gz") == 0
    assert "berlin.tar.gz holds the site, vault: 1 entry" in capsys.readouterr().out
    spend(site, "y")
    assert fedaux(monkeypatch, "deploy", "restore", "berlin.tar.gz", "back") == 0
    assert (
        "If it has sent anything under noise since, this vault is too old"
        in capsys.readouterr().out
    )
    assert (
        fedaux(monkeypatch, "deploy", "write-off", "back", "--entries", 2, "--json")
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["missing"], found["entries"]) == (1, 2)
    assert (
        found["epsilon"]
        >= Config.load(place / "back" / "site.toml").privacy.epsilon_budget
    )


def test_a_server_has_no_vault_that_could_be_too_old(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        fedaux(
            monkeypatch,
            "deploy",
            "backup",
            site.parents[1] / "server",
            "server.tar.gz",
            "--json",
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["party"] == "server"
    assert fedaux(monkeypatch, "deploy", "restore", "server.tar.gz", "back") == 0
    out = capsys.readouterr().out
    assert "back is the server of" in out
    assert "no account" in out
    (site.parents[1] / "server" / "accounts.json").write_text(
        '{"paris": [1, ""], "berlin": [3, "ab"]}'
    )
    assert (
        fedaux(
            monkeypatch, "deploy", "backup", site.parents[1] / "server", "later.tar.gz"
        )
        == 0
    )
    assert (
        "berlin, as it said: 3 entries; paris, as it said: 1 entry"
        in capsys.readouterr().out
    )
    assert "too old" not in out
