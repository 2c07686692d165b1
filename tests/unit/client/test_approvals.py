"""No order is answered that the site's owner has not approved, and the log shows whoever tampers with it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.client import handlers
from fedaux.client.approvals import HEAD, KEY, LOG, ApprovalError, ApprovalLog, LogError, Proposal, with_approval
from fedaux.client.site import Site
from fedaux.config.schema import Config
from fedaux.config.sections import FederationConfig
from fedaux.core.messages import DataOrder, PrepareOrder, Refusal, SumsOrder, SumTerms, TrainOrder
from fedaux.flower.error_redaction import refusal_of

RELEASE = PrepareOrder("berlin", "{}", "class-embedding", 2, 4, "h", 0, {}, {"x": np.zeros(2)})
SUMS = SumsOrder("berlin", "{}", 2, "moments", 4, "h", 0)
TRAIN = TrainOrder(
    "berlin", 1, "{}", 2, "fedaux", "{}", 1, 8, "adam", 0.1, 0.0, 0.0, 0.0, 1, "h", 0, "run-1", 0, {"p": np.zeros(3)}
)


def site(folder: Path, *standing: str, approval: str = "ask") -> Site:
    federation = FederationConfig(approval=approval, standing=standing)  # type: ignore[arg-type]
    return Site(Config(federation=federation), folder / "vault", ("berlin",))


@with_approval
def answer(order: DataOrder, site: Site) -> str:
    return "answered"


@pytest.fixture
def log(tmp_path: Path) -> ApprovalLog:
    return ApprovalLog(tmp_path / "vault")


@pytest.mark.parametrize("order", [RELEASE, SUMS, TRAIN])
def test_an_order_waits_for_its_owner(tmp_path: Path, log: ApprovalLog, order: DataOrder) -> None:
    own = site(tmp_path)
    for _ in range(2):
        with pytest.raises(ApprovalError, match="waits for this site's owner") as caught:
            answer(order, own)
    assert refusal_of(caught.value) is Refusal.APPROVAL
    (found,) = log.pending()
    log.decide(found.id, "approved", "anna")
    assert log.pending() == []
    assert answer(order, own) == "answered"
    events = ["proposed", "rejected", "rejected", "approved", "answered"]
    assert [entry.event for entry in log.entries()] == events
    log.decide(found.id, "refused", "anna")  # the last word counts
    with pytest.raises(ApprovalError, match="was refused by"):
        answer(order, own)


def test_each_secure_sum_of_releases_or_features_is_approved_for_itself(tmp_path: Path) -> None:
    """Another run or attempt is another release, or another sum whose difference to the first shows a site."""
    terms = SumTerms("run-1", "s", 0, ["berlin", "oslo", "rome"], 3, 1, 0.0, 1)
    others = [replace(terms, run="run-2"), replace(terms, attempt=1), replace(terms, sites=["berlin", "oslo"])]
    for order, same in ((RELEASE, False), (SUMS, False), (TRAIN, True)):
        first, *rest = (Proposal.of(replace(order, sum=one.to_json()), site(tmp_path)).id for one in (terms, *others))
        assert [one == first for one in rest] == [same, same, False]  # a training is one run, which its order names


@pytest.mark.parametrize(
    ("handler", "order"), [(handlers.prepare, RELEASE), (handlers.sums, SUMS), (handlers.train, TRAIN)]
)
def test_every_handler_asks_before_anything_else(tmp_path: Path, handler: object, order: DataOrder) -> None:
    with pytest.raises(ApprovalError):
        handler(order, site(tmp_path))  # type: ignore[operator]


def test_one_approval_lasts_for_a_run_and_for_no_other(tmp_path: Path, log: ApprovalLog) -> None:
    own = site(tmp_path)
    log.append("approved", Proposal.of(TRAIN, own), "anna")
    later = replace(TRAIN, round=2, lr=0.01, seed=9, known_entries=3, last_round=1, weights={"p": np.ones(3)})
    assert answer(later, own) == "answered"
    for other in (replace(TRAIN, run="run-2"), replace(TRAIN, epochs=50), replace(TRAIN, method="fedavg")):
        with pytest.raises(ApprovalError):
            answer(other, own)
    log.append("approved", Proposal.of(RELEASE, own), "anna")
    with pytest.raises(ApprovalError):
        answer(replace(RELEASE, public={"x": np.ones(2)}), own)  # another release


def test_standing_rules_approve_what_they_name(tmp_path: Path, log: ApprovalLog) -> None:
    own = site(tmp_path, "release:*", "train:fedaux")
    assert answer(RELEASE, own) == answer(TRAIN, own) == "answered"
    assert {entry.by for entry in log.entries() if entry.event == "approved"} == {
        "standing rule release:*",
        "standing rule train:fedaux",
    }
    for order in (SUMS, replace(TRAIN, method="fedavg")):
        with pytest.raises(ApprovalError):
            answer(order, own)
    log.decide(Proposal.of(RELEASE, own).id, "refused", "anna")
    with pytest.raises(ApprovalError):
        answer(RELEASE, own)  # the owner's word is above a rule


def test_where_nobody_asks_nothing_is_written(tmp_path: Path) -> None:
    assert answer(TRAIN, site(tmp_path, approval="none")) == "answered"
    assert not (tmp_path / "vault").exists()


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """After a proposal that was refused, and one that was approved and answered."""
    own, log = site(tmp_path, "release:*"), ApprovalLog(tmp_path / "vault")
    with pytest.raises(ApprovalError):
        answer(TRAIN, own)
    log.decide(Proposal.of(TRAIN, own).id, "refused", "anna")
    answer(RELEASE, own)
    return tmp_path / "vault"


def lines(vault: Path) -> list[str]:
    return (vault / LOG).read_text().splitlines()


def forge(vault: Path) -> None:
    """An approval in place of a refusal."""
    (vault / LOG).write_text((vault / LOG).read_text().replace('"refused"', '"approved"'))


def add(vault: Path) -> None:
    """A line of somebody who does not have the key."""
    code, _, text = lines(vault)[-1].partition(" ")
    with (vault / LOG).open("a") as file:
        file.write(f"{code} {text}\n")


def cut(vault: Path) -> None:
    (vault / LOG).write_text("\n".join(lines(vault)[:-1]) + "\n")


def cut_with_head(vault: Path) -> None:
    """The head as it would be if that were its form."""
    kept = lines(vault)[:2]
    (vault / LOG).write_text("\n".join(kept) + "\n")
    (vault / HEAD).write_text(f"2:{kept[-1].partition(' ')[0]}")


def remove(vault: Path) -> None:
    kept = lines(vault)
    (vault / LOG).write_text("\n".join([*kept[:2], *kept[3:]]) + "\n")


def reorder(vault: Path) -> None:
    first, second, *rest = lines(vault)
    (vault / LOG).write_text("\n".join([second, first, *rest]) + "\n")


def lose_key(vault: Path) -> None:
    (vault / KEY).unlink()


def another_key(vault: Path) -> None:
    (vault / KEY).write_bytes(bytes(32))


def empty(vault: Path) -> None:
    (vault / LOG).unlink()


@pytest.mark.parametrize(
    "attack", [forge, add, cut, cut_with_head, remove, reorder, lose_key, another_key, empty], ids=lambda f: f.__name__
)
def test_a_log_that_was_tampered_with_is_an_error_and_approves_nothing(vault: Path, attack: object) -> None:
    ApprovalLog(vault).entries()
    attack(vault)  # type: ignore[operator]
    with pytest.raises(LogError):
        ApprovalLog(vault).entries()
    own = site(vault.parent, "release:*")
    for order in (TRAIN, RELEASE):
        with pytest.raises(LogError) as caught:
            answer(order, own)
    assert refusal_of(caught.value) is Refusal.APPROVAL


def test_a_log_that_was_begun_anew_does_not_go_on_from_a_head_that_was_noted(vault: Path, tmp_path: Path) -> None:
    log = ApprovalLog(vault)
    noted = log.head
    log.check_head(noted)
    answer(RELEASE, site(tmp_path, "release:*"))
    log.check_head(noted)
    for name in (LOG, HEAD, KEY):
        (vault / name).unlink()
    answer(RELEASE, site(tmp_path, "release:*"))
    with pytest.raises(LogError, match="does not go on from the head"):
        log.check_head(noted)


def test_a_process_that_was_killed_between_two_writes_leaves_a_log_that_is_whole(vault: Path) -> None:
    before = (vault / HEAD).read_text()
    ApprovalLog(vault).append("answered", "x", "site")
    (vault / HEAD).write_text(before)
    ApprovalLog(vault).append("answered", "y", "site")
    assert [entry.id for entry in ApprovalLog(vault).entries()][-2:] == ["x", "y"]


def test_the_commands_of_an_owner(tmp_path: Path) -> None:
    own, words = site(tmp_path), ["--site", str(tmp_path)]
    (tmp_path / "site.env").write_text("NAME=berlin\nSERVER=fl.example.org:8443\n")
    with pytest.raises(ApprovalError):
        answer(TRAIN, own)
    identity = Proposal.of(TRAIN, own).id
    shown = CliRunner().invoke(app, ["site", "pending", *words]).output
    assert identity in shown
    assert "train:fedaux" in shown
    assert "models WITHOUT noise" in shown
    assert CliRunner().invoke(app, ["site", "approve", identity, *words]).exit_code == 0
    assert answer(TRAIN, own) == "answered"
    assert "nothing waits" in CliRunner().invoke(app, ["site", "pending", *words]).output
    told = CliRunner().invoke(app, ["site", "log", "--verify", *words])
    assert (told.exit_code, "the log is whole" in told.output) == (0, True)
    assert CliRunner().invoke(app, ["site", "refuse", identity, *words]).exit_code == 0
    assert CliRunner().invoke(app, ["site", "approve", "0" * 16, *words]).exit_code != 0
    forge(tmp_path / "vault")
    assert CliRunner().invoke(app, ["site", "log", "--verify", *words]).exit_code != 0
