"""The owner's view of an account: rows and a statement that rounds up."""

import math
from pathlib import Path

from fedaux.config.sections import PrivacyConfig
from fedaux.privacy.accounting import Mechanism, round_up, total_epsilon
from fedaux.privacy.budget import BudgetStore
from fedaux.privacy.release import release_mechanism
from fedaux.privacy.site_account import SiteAccount
from fedaux.privacy.write_off import write_off
from helpers.samples import release

PRIVACY = PrivacyConfig(epsilon=0.1, epsilon_total=3.0)
SCORES, TRAINING = release_mechanism(2, PRIVACY), Mechanism(6.0, 1.0, 3, 650)


def account(folder: Path, **privacy: int) -> SiteAccount:
    store = BudgetStore(folder, PrivacyConfig(epsilon=0.1, epsilon_total=3.0, **privacy))
    store.release("x", SCORES, lambda: release("a"))
    store.train("round 1", folder / "model", lambda entries: TRAINING, lambda mechanism: b"model")
    return SiteAccount.read(folder, PRIVACY.delta)


def test_every_release_and_every_round_of_training_has_a_row(tmp_path: Path) -> None:
    assert account(tmp_path).rows() == [
        ("1", "release", f"{SCORES.noise_multiplier:.4g}", "1", "1"),
        ("2", "private training", "6", "1", "3"),
    ]


def test_the_statement_rounds_the_composed_total_up_and_names_its_neighbours(tmp_path: Path) -> None:
    total = total_epsilon([SCORES, TRAINING], PRIVACY.delta, PRIVACY.adjacency)
    statement, printed = account(tmp_path).statement(), round_up(total)
    assert f"(releases: 1, rounds of private training: 1) costs at most ε = {printed} at δ = 1e-05" in statement
    assert float(printed) > total
    assert "for one record of a client exchanged for any other, whether or not it arrived" in statement


def test_a_folder_without_an_account_has_spent_nothing(tmp_path: Path) -> None:
    assert SiteAccount.read(tmp_path, 1e-5).epsilon == 0.0


def test_noise_from_a_known_seed_makes_the_account_worthless(tmp_path: Path) -> None:
    owner = account(tmp_path, unsafe_seed=1)
    assert "NOT PRIVATE" in owner.statement()
    assert owner.epsilon == math.inf
    assert owner.to_dict()["epsilon"] is None  # no number stands beside the words


def test_what_was_written_off_is_said(tmp_path: Path) -> None:
    account(tmp_path)
    write_off(BudgetStore(tmp_path, PRIVACY), 4)
    owner = SiteAccount.read(tmp_path, PRIVACY.delta)
    assert [kind for _, kind, *_ in owner.rows()] == ["release", "private training", "written off", "written off"]
    assert "(releases: 1, rounds of private training: 1, written off: 2) costs at most ε = 3" in owner.statement()
