"""Mutations of the layer around the noise: attacks 33 to 41 of docs/attacks.md, and
those of looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedaux import Config
from fedaux.audit import gate as audit_gate
from fedaux.client import approvals, columns, gate
from fedaux.client.secure_sums import Participation
from fedaux.deploy import certificates
from fedaux.messages import DataOrder, RunPlan, Tallies, tallies, types
from fedaux.messages.plan import KIND_OF_ORDER, Ask
from fedaux.messages.types import Text
from fedaux.privacy import curve25519
from fedaux.privacy.secure_sum import keys as session_keys
from helpers.mutations.registry import fails

LAYER = "attacks/test_layer.py"
LOOKS = "attacks/test_looks.py"
DATA_LOOKS = "end_to_end/test_look.py"
COLUMNS = "unit/client/test_columns.py"


@fails(
    f"{LAYER}::test_a_site_for_the_private_head_trains_for_nobody[by hand]",
    red="Message error is None",
    attack="33",
)
def owners_settings_allow_everything(patch: pytest.MonkeyPatch) -> None:
    """The gate does not compare an order with what the owner's settings allow."""
    for check in ("check_word", "check_method", "check_part"):
        patch.setattr(gate, check, lambda *_: None)


@fails(
    f"{LAYER}::test_sites_of_one_sum_are_asked_the_same_and_have_keys_of_their_own[ridge]",
    red="a site keeps an order that the terms are not for",
    attack="34",
)
def sites_of_a_sum_compare_no_orders(patch: pytest.MonkeyPatch) -> None:
    """A site signs who sums, not what: any order may begin a sum."""
    patch.setattr(Participation, "check_order", lambda *_: None)


@fails(
    f"{LAYER}::test_sites_of_one_sum_are_asked_the_same_and_have_keys_of_their_own[ridge]",
    red="a key that was copied",
    attack="35",
)
def keys_may_be_copied(patch: pytest.MonkeyPatch) -> None:
    """A key may have any encoding, and nobody proves to have its private half."""
    patch.setattr(session_keys, "check_possession", lambda *_: None)
    patch.setattr(session_keys, "check_encoding", lambda *_: None)
    patch.setattr(curve25519, "has_full_order", lambda _: True)


@fails(
    f"{LAYER}::test_of_81_sums_one_is_answered", red="assert [True, True", attack="36"
)
def plan_fixes_only_kinds(patch: pytest.MonkeyPatch) -> None:
    """An approval covers every order of a kind, whatever it asks for, at any number."""

    def covers(self: Ask, order: DataOrder) -> bool:
        return self.kind == KIND_OF_ORDER[type(order)]

    patch.setattr(Ask, "covers", covers)
    patch.setattr(approvals, "_check_room", lambda *_: None)


@fails(
    f"{LAYER}::test_a_standing_rule_for_releases_approves_no_training",
    red="assert 16 == 64",
    attack="37",
)
def plans_have_short_ids(patch: pytest.MonkeyPatch) -> None:
    """A plan goes by 64 bits, for which a second plan can be found."""
    whole = RunPlan.hash

    def short(self: RunPlan) -> str:
        digits: str = whole.__get__(self)
        return digits[:16]

    patch.setattr(RunPlan, "hash", property(short))


@fails(
    f"{LOOKS}::test_looks_tell_counts_in_bins_with_noise",
    red="it counts in bins that no site may count in",
    attack="45",
)
def gate_does_not_read_tallies(patch: pytest.MonkeyPatch) -> None:
    """A look is admitted in whatever bins the server declares."""
    patch.setattr(gate, "Tallies", UncheckedTallies)


class UncheckedTallies(Tallies):
    def check(self, classes: int) -> None:
        pass


@fails(
    f"{DATA_LOOKS}::test_columns_that_a_site_does_not_have_are_refused_before_the_account",
    red="assert",
    attack="47",
)
def gate_does_not_compare_columns(patch: pytest.MonkeyPatch) -> None:
    """A look is admitted by columns that the site's schema does not have."""
    patch.setattr(gate, "check_columns", lambda *_: None)


@fails(
    f"{DATA_LOOKS}::test_bins_without_end_are_refused_before_the_account",
    red="isinstance(Counts",
    attack="48",
)
def tallies_have_any_number_of_edges(patch: pytest.MonkeyPatch) -> None:
    """A tally may have as many edges as fit into an order."""
    patch.setattr(tallies, "MAX_EDGES", tallies.MAX_BINS)


@fails(
    f"{COLUMNS}::test_memory_does_not_grow_with_the_number_of_bins",
    red="assert peaks",
    attack="48",
)
def each_bin_is_a_number_of_each_record(patch: pytest.MonkeyPatch) -> None:
    """A site keeps a number for each record and bin, and not its bin."""
    read = columns.read_bins

    def read_numbers(
        config: Config, client: str, edges: Mapping[str, tuple[float, ...]]
    ) -> NDArray[np.uint16]:
        bins = read(config, client, edges)
        for place, inner in enumerate(edges.values()):
            numbers = np.eye(len(inner) + 2, dtype=np.float32)[bins[place]]
            bins[place] = numbers.argmax(axis=1)
        return bins

    patch.setattr(columns, "read_bins", read_numbers)


@fails(
    f"{LOOKS}::test_one_approval_is_for_one_look",
    red="LookOrder with another model is answered",
    attack="46",
)
def plan_allows_looks_without_end(patch: pytest.MonkeyPatch) -> None:
    """An approval covers any number of looks, each by another model."""
    patch.setattr(approvals, "_check_room", lambda *_: None)


@fails(
    f"{LAYER}::test_the_owner_s_screen_shows_what_is_approved",
    red="Message error is None",
    attack="38",
)
def texts_may_move_the_cursor(patch: pytest.MonkeyPatch) -> None:
    """Text in messages may have any characters."""

    def problem(self: Text, value: Any) -> str:
        allowed = value in self.choices if self.choices else isinstance(value, str)
        return "" if allowed else "text"

    patch.setattr(Text, "problem", problem)
    patch.setattr(types, "_is_printable", lambda _: True)


@fails(
    f"{LAYER}::test_an_order_cannot_fill_the_memory_of_a_site",
    red="assert 'failed' == <Refusal.ORDER",
    attack="39",
)
def orders_choose_sizes(patch: pytest.MonkeyPatch) -> None:
    """An order may ask for any number of random features."""
    patch.setattr(gate, "check_sizes", lambda *_: None)


@fails(
    f"{LAYER}::test_both_keys_of_a_site_are_replaced_and_named_together",
    red="assert b",
    attack="40",
)
def key_of_sums_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A new key of a site leaves the key of its secure sums as it was."""
    make = certificates.make_signing_key

    def keep(vault: Path, replace: bool = False) -> bytes:
        return make(vault)

    patch.setattr(certificates, "make_signing_key", keep)


@fails(
    f"{LAYER}::test_the_owners_audit_finds_what_is_taken_out"
    "[layer.owners_settings_allow_everything-gate-private-head]",
    red="owners_settings_allow_everything",
    attack="41",
)
def audit_sends_no_orders_to_train(patch: pytest.MonkeyPatch) -> None:
    """The owner's audit tries no training."""
    patch.setattr(audit_gate, "METHODS", {})
