"""Attacks run one after another, each in an empty folder of its own, and nothing of it
is left.
"""

import logging
from pathlib import Path

import pytest

from fedaux.audit import run
from fedaux.audit.own_site import OwnSite
from fedaux.audit.result import AttackResult, AttackSkipped
from fedaux.config.schema import Config
from fedaux.core.errors import UnknownNameError
from fedaux.core.progress import ProgressEvent, WorkProgress, report_to


@pytest.fixture
def config() -> Config:
    """The settings of a site with a table."""
    return Config.from_dict(
        {
            "prototypes": ["mlp"],
            "data": {
                "source": "csv",
                "path": "table.csv",
                "partition": "own",
                "classes": ["a", "b"],
            },
            "federation": {"sites": ["berlin"]},
            "privacy": {"epsilon": 2.0},
        }
    )


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two attacks that leave something behind; the folders they were given."""
    seen: list[Path] = []

    def leave(leaks: bool):  # type: ignore[no-untyped-def]
        def attack(own: OwnSite, folder: Path) -> AttackResult:
            assert list(folder.iterdir()) == []
            (folder / "vault").mkdir()
            seen.append(folder)
            logging.getLogger("fedaux.flower.error_redaction").error("a site complains")
            return AttackResult(own.config.privacy.epsilon, 9.0 if leaks else 0.0)

        return attack

    monkeypatch.setattr(
        run,
        "OWN_ATTACKS",
        {"first": ("all", leave(False)), "second": ("rest", leave(True))},
    )
    return seen


def test_all_attacks_in_order_or_those_that_are_named(
    folders: list[Path], config: Config
) -> None:
    events: list[ProgressEvent] = []
    with report_to(events.append):
        results = list(run.audit_site(config))
    assert [(one.name, one.attacked, one.violated) for one in results] == [
        ("first", "all", False),
        ("second", "rest", True),
    ]
    assert [one.claimed for one in results] == [2.0, 2.0]
    assert len(set(folders)) == 2  # each has one of its own, and none stays
    assert not any(folder.exists() for folder in folders)
    assert events == [
        WorkProgress("attacks", 1, 2, "first"),
        WorkProgress("attacks", 2, 2, "second"),
    ]
    assert [one.name for one in run.audit_site(config, only=["second"])] == ["second"]


def test_an_attack_that_was_skipped_refutes_nothing_and_says_why(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attack(own: OwnSite, folder: Path) -> AttackResult:
        raise AttackSkipped("transformers is not installed")

    attacks = {"texts": ("the length of one text", attack)}
    monkeypatch.setattr(run, "OWN_ATTACKS", attacks)
    (skipped,) = run.audit_site(config)
    assert (skipped.name, skipped.attacked) == ("texts", "the length of one text")
    assert (skipped.skipped, skipped.violated, skipped.detail) == (
        True,
        False,
        "transformers is not installed",
    )


def test_the_log_of_a_site_is_silent_meanwhile_only(
    folders: list[Path], config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    list(run.audit_site(config))
    assert "complains" not in caplog.text
    logging.getLogger("fedaux.flower.error_redaction").error("later")
    assert "later" in caplog.text


def test_an_unknown_attack_is_refused_before_any_starts(
    folders: list[Path], config: Config
) -> None:
    with pytest.raises(
        UnknownNameError, match=r"attack 'frist': .* \(did you mean 'first'\?\)"
    ):
        list(run.audit_site(config, only=["first", "frist"]))
    assert folders == []
