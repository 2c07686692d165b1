"""A hostile server and bad sites against a symbolic model of secure sums: all runs
within bounds.

The model is `secure_sum.maude`. The old rules have the two attacks of the reviews, a
copied mask key and unequal orders; the new rules have neither. What each rule is for is
tested by leaving it out. Then the vault of an honest site is restored in the middle of
a sum.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("secure_sum.maude")
BAD = "bad(S:State)"  # the server learns what it must not learn
COPIED = f"{BAD} and not unequal(S:State)"  # although all sites answered the same order
NO_SOLUTION = re.compile(r"^No solution\.$", re.MULTILINE)
SOLUTION = re.compile(r"^Solution 1 ", re.MULTILINE)
STATES = re.compile(r"^states: (\d+)", re.MULTILINE)
SECONDS = 900  # more than any search takes; one that is cut off fails

pytestmark = pytest.mark.skipif(
    shutil.which("maude") is None,
    reason="the model needs Maude 3: `apt-get install maude`",
)


@dataclass(frozen=True)
class Found:
    """What a search came to: a run that meets the condition, or none among all runs."""

    attack: bool
    states: int


@cache
def search(start: str, condition: str = BAD, arrow: str = "=>!") -> Found:
    """Search all runs from init(`start`) for a last state that meets the condition.

    With "=>*" as the arrow, any state will do.
    """
    done = subprocess.run(
        ["maude", "-no-banner", "-no-advise", "-no-wrap", "-batch", str(MODEL)],
        input=f"search [1] init({start}) {arrow} S:State such that {condition} .\n",
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    # What Maude cannot read it leaves out, with a warning: the rest would be another
    # model.
    assert "Warning" not in done.stdout + done.stderr, done.stderr
    solved = SOLUTION.search(done.stdout) is not None
    assert solved != (NO_SOLUTION.search(done.stdout) is not None), done.stdout
    states = STATES.search(done.stdout)
    assert states is not None, done.stdout
    return Found(solved, int(states[1]))


def learns_sum(start: str, sites: range) -> bool:
    names = " U ".join(map(str, sites))
    return search(start, f"sums(learnt(S:State), {names})").attack


# The old rules


@pytest.mark.parametrize("sites", [3, 4, 5])
def test_old_rules_let_a_copied_mask_key_cancel_masks(sites: int) -> None:
    assert search(f"{sites}, {sites}, {sites}, old, 0", COPIED).attack


def test_a_copied_mask_key_shows_one_of_three_sites_alone() -> None:
    assert search("3, 3, 3, old, 0", f"alone(learnt(S:State)) and {COPIED}").attack


@pytest.mark.parametrize("sites", [3, 4, 5])
def test_old_rules_sum_unequal_orders(sites: int) -> None:
    assert search(f"{sites}, {sites}, nobody, old, 0", "mixed(learnt(S:State))").attack


@pytest.mark.parametrize("sites", [3, 4, 5])
def test_old_rules_have_no_third_attack_here(sites: int) -> None:
    """Without bad sites and with equal orders: the model does not call everything an
    attack.
    """
    assert not search(f"{sites}, {sites}, nobody, old, 0", COPIED).attack


@pytest.mark.slow
def test_old_rules_let_two_sites_copy_keys_of_boxes() -> None:
    """Two boxes under one key and one nonce.

    Two bad sites then read four shares, as many as a secret needs.
    """
    assert search("5, 4, 4 U 5, identity boxes, 0", BAD, "=>*").attack


# The new rules


@pytest.mark.parametrize("sites", [3, 4, 5])
def test_new_rules_open_an_honest_sum(sites: int) -> None:
    """The searches below find nothing, but not because nothing can happen."""
    assert learns_sum(f"{sites}, {sites}, nobody, new, 0", range(1, sites + 1))


@pytest.mark.parametrize("sites", [4, 5])
def test_new_rules_open_a_sum_with_a_lost_site(sites: int) -> None:
    start = f"{sites}, {sites - 1}, nobody, new steady, 0"
    assert learns_sum(start, range(1, sites + 1))
    assert learns_sum(start, range(1, sites))


def test_new_rules_open_two_sums_at_once() -> None:
    both = "sums(learnt(S:State), 1 U 2 U 3) and unequal(S:State)"
    assert search("3, 3, nobody, new both, 0", both).attack


@pytest.mark.parametrize("rules", ["new", "new both"])
@pytest.mark.parametrize("bad", ["nobody", "last"])
@pytest.mark.parametrize("sites", [3, 4, 5])
def test_new_rules_withstand_where_all_sites_are_needed(
    sites: int, bad: str, rules: str
) -> None:
    names = str(sites) if bad == "last" else bad
    assert not search(f"{sites}, {sites}, {names}, {rules}, 0").attack


@pytest.mark.parametrize(
    "start", ["3, 3, 1", "3, 3, 2", "4, 4, 1", "4, 4, 2", "5, 5, 4 U 5"]
)
def test_new_rules_withstand_bad_sites_with_other_names(start: str) -> None:
    assert not search(f"{start}, new, 0").attack


@pytest.mark.parametrize(
    "start", ["4, 3, nobody", "4, 3, 1", "4, 3, 4", "5, 4, 5", "5, 4, 4 U 5"]
)
def test_new_rules_withstand_where_sites_may_be_lost(start: str) -> None:
    assert not search(f"{start}, new, 0").attack


@pytest.mark.slow
@pytest.mark.parametrize("start", ["5, 4, nobody, new, 0", "4, 3, 4, new both, 0"])
def test_new_rules_withstand_in_larger_searches(start: str) -> None:
    assert not search(start).attack


def test_new_rules_withstand_copied_keys_of_boxes() -> None:
    assert not search("5, 4, 4 U 5, new boxes, 0").attack


# What each rule is for


@pytest.mark.parametrize(
    "start", ["3, 3, nobody", "3, 3, 3", "4, 4, 4", "5, 5, nobody", "4, 3, 4"]
)
def test_without_identity_unequal_orders_are_summed(start: str) -> None:
    found = search(
        f"{start}, binding possession canonical, 0", "mixed(learnt(S:State))"
    )
    assert found.attack


@pytest.mark.parametrize("sites", [3, 4])
def test_without_all_three_rules_about_keys_masks_cancel(sites: int) -> None:
    assert search(f"{sites}, {sites}, {sites}, identity, 0").attack


@pytest.mark.parametrize("rule", ["binding", "possession", "canonical"])
@pytest.mark.parametrize("start", ["3, 3, 3", "4, 4, 4"])
def test_each_rule_about_keys_is_enough_alone(start: str, rule: str) -> None:
    """So leaving out one or two of them brings nothing back: there are three lines of
    defence.
    """
    assert not search(f"{start}, identity {rule}, 0").attack


# The model's own argument: sites may be asked step by step


@pytest.mark.parametrize(
    "rules",
    ["old", "new", "identity", "binding possession canonical", "new both"],
)
@pytest.mark.parametrize("bad", ["nobody", "1", "2", "3"])
def test_the_order_of_messages_makes_no_difference(bad: str, rules: str) -> None:
    sorted_runs = search(f"3, 3, {bad}, {rules}, 0")
    all_runs = search(f"3, 3, {bad}, {rules} anytime, 0")
    assert all_runs.states > sorted_runs.states
    assert all_runs.attack == sorted_runs.attack


def test_the_order_of_messages_makes_no_difference_where_sites_may_be_lost() -> None:
    assert not search("4, 3, 4, new anytime, 0").attack


# Restored vaults


def test_old_rules_mask_two_vectors_alike_after_a_restored_vault() -> None:
    """The difference of a site's answers to two orders is seen: not so without a
    restored vault.
    """
    assert search("3, 3, nobody, old, 1", "oneSite(learnt(S:State))").attack
    assert not search("3, 3, nobody, old, 0", "oneSite(learnt(S:State))").attack


@pytest.mark.parametrize(
    "rules", ["new", "new anyone", "new memory", "new memory redrawn"]
)
@pytest.mark.parametrize("bad", ["nobody", "3"])
def test_new_rules_withstand_restored_vaults_of_three_sites(
    bad: str, rules: str
) -> None:
    assert not search(f"3, 3, {bad}, {rules}, 2").attack


def test_a_restored_vault_that_draws_its_noise_anew_gives_it_away() -> None:
    """Two vectors under one mask. So backups leave out the secrets of sums: the rule
    `memory`.
    """
    assert search("3, 3, nobody, new redrawn, 1").attack


@pytest.mark.parametrize("start", ["4, 3, nobody", "5, 4, 5"])
def test_masks_that_depend_on_partners_withstand_two_restored_vaults(
    start: str,
) -> None:
    """Else vectors for other lists of partners would show masks of pairs, and the mask
    with a lost site is seen.
    """
    assert not search(f"{start}, new steady, 2").attack
    others = "identity binding possession canonical steady"
    assert search(f"{start}, {others}, 2", "alone(learnt(S:State))").attack


def test_one_restored_vault_needs_no_rule_about_partners() -> None:
    assert not search(
        "4, 3, nobody, identity binding possession canonical steady, 1"
    ).attack


def test_a_site_with_a_restored_vault_counts_as_a_bad_site() -> None:
    """With 2T - N = 2, a bad site and a restored one sign two sets of survivors. No
    rule helps.
    """
    for rules in ("new", "new memory"):
        assert search(f"4, 3, 4, {rules}, 1").attack


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        "4, 3, nobody, new, 1",
        "4, 3, nobody, new memory, 1",
        "4, 3, nobody, new steady, 3",
        "5, 4, 5, new steady, 3",
    ],
)
def test_restored_vaults_in_larger_searches(start: str) -> None:
    assert not search(start).attack
