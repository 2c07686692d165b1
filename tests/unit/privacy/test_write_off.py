"""What is missing of an account counts as all that was left."""

from pathlib import Path

import pytest

from fedaux.config.sections import PrivacyConfig
from fedaux.privacy.account_file import LOST, Entry, read_account
from fedaux.privacy.accounting import BudgetError, Mechanism
from fedaux.privacy.budget import BudgetStore
from fedaux.privacy.write_off import write_off

PRIVACY = PrivacyConfig(epsilon=0.1, epsilon_total=1.0)


def costly(folder: Path) -> list[Entry]:
    return [entry for entry in read_account(folder)[1] if entry.steps > 0]


def no_plan(entries: list[Entry]) -> Mechanism:
    raise AssertionError("another round was planned")


def no_training(mechanism: Mechanism) -> bytes:
    raise AssertionError("private records were trained on")


@pytest.mark.parametrize("missing", [1, 3])
def test_nothing_is_left_and_the_count_is_what_the_server_has_heard(tmp_path: Path, missing: int) -> None:
    store = BudgetStore(tmp_path, PRIVACY)
    store.train("x", tmp_path / "model", lambda entries: Mechanism(20.0), lambda mechanism: b"")
    before = store.account()
    assert write_off(store, 1 + missing) == missing
    after = store.account()
    assert before.epsilon < 0.9
    assert 1.0 <= after.epsilon < 1.02
    assert after.entries == 1 + missing
    assert [entry.request for entry in costly(tmp_path)][1:] == [LOST] * missing
    with pytest.raises(BudgetError, match="training is refused"):
        store.train("y", tmp_path / "other", lambda entries: Mechanism(1000.0), lambda mechanism: b"")
    store.train("x", tmp_path / "model", no_plan, no_training, 1 + missing)


def test_a_vault_that_is_gone_altogether(tmp_path: Path) -> None:
    store = BudgetStore(tmp_path / "new", PRIVACY)
    assert write_off(store, 2) == 2
    assert 1.0 <= store.account().epsilon < 1.02


def test_an_account_that_had_nothing_left_costs_no_more(tmp_path: Path) -> None:
    store = BudgetStore(tmp_path, PRIVACY)
    write_off(store, 1)
    spent = store.account().epsilon
    write_off(store, 3)
    assert store.account().epsilon == pytest.approx(spent, rel=1e-3)
    assert store.account().entries == 3


def test_what_is_not_missing_is_not_written_off(tmp_path: Path) -> None:
    store = BudgetStore(tmp_path, PRIVACY)
    write_off(store, 2)
    with pytest.raises(BudgetError, match="has 2 entries: of 2, none is missing"):
        write_off(store, 2)
    assert len(costly(tmp_path)) == 2
