"""`fedaux deploy write-off`: what an old vault misses is given up."""

import json
import shutil
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import Mechanism
from helpers.accounts import enter
from helpers.commands import fedaux
from helpers.deployments import deploy


def spend(site: Path, request: str) -> None:
    store = BudgetStore(site / "vault", Config.load(site / "site.toml").privacy)
    enter(store, request, Mechanism(99.0))


def test_what_an_old_vault_misses_is_written_off(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = deploy(place / "hospitals") / "sites" / "berlin"
    spend(site, "x")
    shutil.copytree(site, "back")
    spend(site, "y")
    words = ("deploy", "write-off", "back", "--entries", 2)
    assert fedaux(monkeypatch, *words, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["missing"], result["entries"]) == (1, 2)
    budget = Config.load(place / "back" / "site.toml").privacy.epsilon_budget
    assert result["epsilon"] >= budget
