"""`fedaux privacy`: reports of runs and of sites, and an audit that exits with its
verdict.
"""

import json
from pathlib import Path

import pytest

from fedaux.config.sections import PrivacyConfig
from fedaux.core.errors import Exit
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import release_mechanism
from helpers.accounts import enter
from helpers.commands import fedaux, paragraph
from helpers.mutations import uncapped
from helpers.runs import finished_run

SITE = """\
method = "private-head"
prototypes = [{name = "mlp", features = 8, hidden = 8}]
[data]
source = "images"
path = "/nowhere"
partition = "own"
classes = ["flu", "cold"]
options = {size = 8}
[federation]
sites = ["berlin"]
sends = ["noisy sums"]
[privacy]
delta = 1e-6
"""


def test_privacy_audit_exits_with_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site.toml"
    site.write_text(SITE)
    audit = ("privacy", "audit", "--site", site)
    only = ("--only", "own-networks", "--only", "own-account")
    assert fedaux(monkeypatch, *audit, *only) == 0
    assert "No violation was found" in paragraph(capsys.readouterr().out)
    uncapped(monkeypatch)
    assert fedaux(monkeypatch, *audit, *only) == 1
    assert "The claim does not hold against own-account" in paragraph(
        capsys.readouterr().out
    )
    assert fedaux(monkeypatch, *audit, *only, "--json") == 1
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["violated"]
    assert verdict["delta"] == 1e-6
    assert [row["violated"] for row in verdict["findings"]] == [False, True]
    assert fedaux(monkeypatch, *audit, "--only", "nothing") == Exit.SETTINGS
    assert "the attack 'nothing': it is unknown" in paragraph(capsys.readouterr().err)


def test_an_audit_says_that_it_needs_the_settings_of_a_site(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "privacy", "audit") == Exit.USAGE
    assert "--site site.toml" in paragraph(capsys.readouterr().err)


def test_a_report_shows_what_was_spent_and_what_is_not_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = finished_run(tmp_path)
    assert fedaux(monkeypatch, "privacy", "report", tmp_path, "--limit", 2) == 0
    printed = paragraph(capsys.readouterr().out)
    assert "The 2 of 3 clients that spent most" in printed
    assert "client-001" in printed
    assert "client-002" not in printed
    assert (
        "Not covered: local models, their losses and training times are sent without "
        "differential privacy" in printed
    )
    assert fedaux(monkeypatch, "privacy", "report", tmp_path, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["statement"] == result.statement
    assert [one["client"] for one in facts["clients"]] == [
        "client-000",
        "client-001",
        "client-002",
    ]


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """Two sites, each of which has made one release."""
    privacy = PrivacyConfig(epsilon=0.1)
    for name in ("berlin", "paris"):
        store = BudgetStore(tmp_path / "vaults" / name, privacy)
        enter(store, "x", release_mechanism(2, privacy))
    return tmp_path / "vaults"


def test_a_site_reads_its_own_account(
    vault: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "privacy", "report", "--vault", vault / "berlin") == 0
    printed = paragraph(capsys.readouterr().out)
    assert (
        "(releases: 1, rounds of private training: 0) costs at most ε = 0.1 at δ = "
        "1e-05" in printed
    )
    assert "paris" not in printed
    assert fedaux(monkeypatch, "privacy", "report", "--vault", vault, "--json") == 0
    accounts = json.loads(capsys.readouterr().out)["accounts"]
    assert [round(one["epsilon"], 4) for one in accounts] == [0.1, 0.1]
    assert (
        fedaux(monkeypatch, "privacy", "report", "--vault", vault / "nowhere")
        == Exit.PRIVACY
    )
    assert "there is no account below" in paragraph(capsys.readouterr().err)


def test_a_run_or_a_vault_must_be_named(
    vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fedaux(monkeypatch, "privacy", "report") == Exit.USAGE
    assert (
        fedaux(monkeypatch, "privacy", "report", vault, "--vault", vault) == Exit.USAGE
    )
