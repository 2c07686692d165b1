"""Looks, attacked: counts tell no more than the noise is for, a site answers those that
its owner allows, and one approval is for one look.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.package.bounds import lower_bounds
from fedaux import Config
from fedaux.audit.approvals import own_approvals
from fedaux.audit.gate import own_gate
from fedaux.audit.looks import LOOK_AT_CLASSES, every_look, look_order
from fedaux.audit.own_site import OwnSite
from fedaux.audit.secure_sums import SecureSites, own_sums
from fedaux.audit.site import AuditedSite, HostileServer
from fedaux.client.looks import count_in_bins
from fedaux.config.sections import PrivacyConfig
from fedaux.config.sends import NOISY_COUNTS, needed_by
from fedaux.core.failures import Refusal
from fedaux.flower.federation import read_reply
from fedaux.messages import Counts, LookOrder, Tallies, Tally
from fedaux.privacy.looks import scale_of
from fedaux.privacy.mechanism import add_noise
from fedaux.privacy.site_account import SiteAccount

EPSILON, DELTA = 4.0, 1e-5
DRAWS = 4_000
FOUR = Tallies({str(number): Tally("answers") for number in range(4)})
COLUMNS = ("age", "weight", "height")
OF_DATA = Tallies(
    {
        "classes": Tally("classes"),
        **{name: Tally("column", edges=(0.0, 1.0), column=name) for name in COLUMNS},
    }
)


def settings(share: float = 0.5, epsilon: float = 1.0, **federation: Any) -> Config:
    """The settings of a site that computes a ridge head and allows looks."""
    config = Config.from_dict(
        {
            "method": "ridge",
            "prototypes": [{"name": "mlp", "hidden": 4, "features": 4, "norm": "none"}],
            "data": {
                "source": "npy",
                "path": "/nowhere",
                "classes": ["a", "b"],
                "partition": "own",
                "site_test_fraction": share,
            },
            "privacy": {"look_epsilon": epsilon},
            "federation": {"sites": ["site"], **federation},
        }
    )
    sends = {*needed_by(config), NOISY_COUNTS}
    federation = replace(config.federation, sends=tuple(sorted(sends)))
    return replace(config, federation=federation)


def not_listed() -> Config:
    """The settings of an owner who lists all but looks."""
    config = settings()
    words = tuple(word for word in config.federation.sends if word != NOISY_COUNTS)
    return replace(config, federation=replace(config.federation, sends=words))


def own(config: Config) -> OwnSite:
    return OwnSite(config, ("a", "b"), (4,))


def counts(tallies: Tallies, label: int) -> np.ndarray:
    """Of eight records that the model takes for class 0, and that are in bin 0 of all
    columns: one with this label, in this bin.
    """
    labels = np.array([label, *[0] * 7])
    logits = np.tile(np.array([1.0, 0.0], np.float32), (8, 1))
    columns = dict.fromkeys(COLUMNS, labels)
    return count_in_bins(tallies, 2, labels, logits, np.ones(8), columns)


def bounds(
    tallies: Tallies, noise: float = 1.0, draws: int = DRAWS
) -> tuple[float, float]:
    """ε proven from many looks at two neighbours, by who knows where they differ."""
    privacy = PrivacyConfig(look_epsilon=EPSILON, delta=DELTA)
    neighbours = [counts(tallies, 0), counts(tallies, 1)]
    scale = noise * scale_of(tallies, len(neighbours[0]), privacy)
    direction = (neighbours[1] - neighbours[0]).astype(np.float64)
    first, second = (
        add_noise(np.tile(values, draws), scale).reshape(draws, -1) @ direction
        for values in neighbours
    )
    return lower_bounds(first, second, DELTA, confidence=0.999)


@pytest.mark.parametrize("tallies", [FOUR, OF_DATA], ids=["answers", "data"])
def test_counts_of_neighbours_are_as_hard_to_tell_apart_as_claimed(
    tallies: Tallies,
) -> None:
    """A record in four tallies leaves a bin of each and enters another."""
    any_mechanism, gaussian = bounds(tallies)
    assert max(any_mechanism, gaussian) <= EPSILON
    assert gaussian >= 0.6 * EPSILON


@pytest.mark.parametrize("tallies", [FOUR, OF_DATA], ids=["answers", "data"])
def test_counts_with_half_the_noise_are_reported(tallies: Tallies) -> None:
    assert max(bounds(tallies, noise=0.5, draws=1_000)) > EPSILON


def test_looks_tell_counts_in_bins_with_noise(tmp_path: Path) -> None:
    result = own_gate(own(settings()), tmp_path)
    assert not result.violated, result.detail
    assert NOISY_COUNTS in result.detail


@pytest.mark.parametrize(
    "config",
    [
        settings(share=0.0),
        settings(share=0.0, epsilon=0.0),
        not_listed(),
    ],
    ids=["nothing held out", "no looks", "not listed"],
)
def test_a_site_answers_no_look_that_its_owner_does_not_allow(
    tmp_path: Path, config: Config
) -> None:
    """Without held-out records, it answers looks at all of them alone."""
    site = own(config).synthetic_site(tmp_path)
    server = own(config).server_against(site)
    counts_all = config.privacy.look_epsilon > 0 and not config.tests_at_sites
    looks = [
        order
        for name, order in every_look(server)
        if name != LOOK_AT_CLASSES or not counts_all
    ]
    reasons = {site.send(order).error.reason for order in looks}
    assert reasons == {Refusal.ORDER}
    assert SiteAccount.read(site.vault, DELTA).entries == ()


def site_and_server(folder: Path) -> tuple[AuditedSite, HostileServer]:
    site = own(settings()).synthetic_site(folder)
    return site, own(settings()).server_against(site)


def test_the_same_look_is_answered_by_the_same_bytes(tmp_path: Path) -> None:
    """Fresh noise for the same question could be averaged away."""
    site, server = site_and_server(tmp_path)
    order = look_order(server)
    answers = [read_reply(Counts, site.send(order)) for _ in range(3)]
    first = answers[0].arrays["values"]
    assert all(np.array_equal(first, one.arrays["values"]) for one in answers)
    assert len(SiteAccount.read(site.vault, DELTA).entries) == 1


def test_looks_end_with_the_budget(tmp_path: Path) -> None:
    """Each model is another question, and costs as much as the first."""
    site, server = site_and_server(tmp_path)
    privacy = site.config.privacy
    order = look_order(server)
    zeros = np.zeros_like(order.weights["parameters"])
    orders = [
        replace(order, weights={"parameters": zeros + np.float32(number)})
        for number in range(6)
    ]
    reasons = [
        reply.error.reason if reply.has_error() else ""
        for reply in map(site.send, orders)
    ]
    answered = reasons.count("")
    assert 0 < answered < len(orders)
    assert reasons[answered:] == [Refusal.BUDGET] * (len(orders) - answered)
    assert SiteAccount.read(site.vault, DELTA).epsilon <= privacy.epsilon_budget


def test_one_approval_is_for_one_look(tmp_path: Path) -> None:
    result = own_approvals(own(settings(approval="ask")), tmp_path)
    assert not result.violated, result.detail


def test_sites_of_a_secure_sum_count_for_the_same_order(tmp_path: Path) -> None:
    config = settings(secure=True)
    result = own_sums(own(config), tmp_path / "attacked")
    assert not result.violated, result.detail
    sites = SecureSites.at(own(config), tmp_path / "honest")
    look = sites.orders()[-1]
    assert isinstance(look, LookOrder)
    assert sites.accepts_unequal(look, look, same_terms=True)
