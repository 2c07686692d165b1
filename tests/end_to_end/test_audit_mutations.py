"""The power of the attacks on the package: every defect that there ever was is found if
it is put back, and nothing is found without.
"""

import pytest

from attacks.package.bounds import AuditConfig
from attacks.package.table import ATTACKS, attack
from fedaux.core.failures import OrderError
from fedaux.flower import client_app as client
from fedaux.flower.serialization import MessageError
from helpers.mutations import AUDIT_FINDINGS, AuditFinding

SLOW = {"noise-mean", "noise-drop-in", "noise-training", "lost-replies", "kept-state"}


def cases() -> list[object]:
    return [
        pytest.param(
            finding,
            name,
            id=f"{finding.name}: {name}",
            marks=[pytest.mark.slow] if finding.slow else [],
        )
        for finding in AUDIT_FINDINGS
        for name in finding.attacks
    ]


@pytest.mark.parametrize(("finding", "name"), cases())
def test_a_defect_that_is_put_back_is_found(
    finding: AuditFinding, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding.mutation(monkeypatch)
    found = attack(
        name, AuditConfig(draws=finding.draws) if finding.draws else AuditConfig()
    )
    if found.skipped:
        pytest.skip(found.detail)
    assert found.violated, found
    assert found.bound > found.claimed


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in ATTACKS
    ],
)
def test_as_it_is_the_client_withstands_the_attack(name: str) -> None:
    found = attack(name, AuditConfig())
    if found.skipped:
        pytest.skip(found.detail)
    assert not found.violated, found
    assert found.name == name


def test_every_attack_has_a_defect_that_it_must_find() -> None:
    assert set(ATTACKS) == {
        name for finding in AUDIT_FINDINGS for name in finding.attacks
    }


@pytest.mark.parametrize(
    "name",
    ["noise-scores", "noise-training", "questions", "many-names", "fields", "hello"],
)
def test_a_client_that_answers_nothing_passes_no_audit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a mistake in the audit itself would look like privacy."""

    def refuse(context: object) -> None:
        raise OrderError("no")

    monkeypatch.setattr(client, "open_site", refuse)
    try:
        found = attack(name, AuditConfig())
    except (AssertionError, KeyError, MessageError):
        return
    assert found.violated
