"""Attacks on what a site releases under noise: by its networks, its source, the
server's public map, and its account.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedaux.audit.own_site import OwnSite
from fedaux.audit.result import AttackResult
from fedaux.audit.site import AuditedSite, compare_releases, refused
from fedaux.client.features import private_outputs
from fedaux.flower.federation import read_reply
from fedaux.messages import Order, PrepareOrder, Release, Update
from fedaux.models import build
from fedaux.privacy.accounting import Mechanism, total_epsilon
from fedaux.privacy.module_validation import UnsupportedModuleError, validate_module
from fedaux.privacy.per_record import ImpureModuleError

# (type of the public map's numbers, the number that fills it)
ODD_MAPS = (
    ("int64", np.iinfo(np.int64).min),
    ("float64", 1e300),
    ("float32", np.nan),
    (">f4", 1.0),
)
QUESTIONS = 4


def own_networks(own: OwnSite, folder: Path) -> AttackResult:
    """Every network of the settings: by its modules and their options, and by what it
    does to records.
    """
    config = own.config
    trains_privately = config.privacy.private_training and not config.head_only
    records = own.records(own.synthetic_site(folder))
    for spec in config.prototypes:
        model = build(spec, records.shape, len(own.classes), 0)
        try:
            private_outputs(model.features, records)
            if trains_privately:
                validate_module(model, training=True)
        except (UnsupportedModuleError, ImpureModuleError) as error:
            return AttackResult.exact(True, f"{spec.label}: {error}")
    names = ", ".join(spec.label for spec in config.prototypes)
    detail = f"{names}: allowed modules, and {len(records)} records left no trace"
    return AttackResult.exact(False, detail)


def own_source(own: OwnSite, folder: Path) -> AttackResult:
    """One record exchanged for each odd one, from the file to the release."""
    releasing = own.releasing()
    pairs = list(releasing.pairs(folder))
    _, first_pair = pairs[0]
    (order,) = releasing.orders(first_pair[0], 1)
    results = [compare_releases(sites, order, odd) for odd, sites in pairs]
    worst = _worst(results)
    detail = f"{len(results)} odd records, at worst {worst.detail}"
    return replace(worst, detail=detail)


def own_map(own: OwnSite, folder: Path) -> AttackResult:
    """A public map of other types than the site expects, NaN and infinities among
    them.
    """
    releasing = own.releasing()
    _, sites = next(releasing.pairs(folder))
    (order,) = releasing.orders(sites[0], 1)
    shape = order.public["basis"].shape
    results = []
    for dtype, number in ODD_MAPS:
        public = {**order.public, "basis": np.full(shape, number, dtype)}
        odd_order = replace(order, public=public)
        results.append(compare_releases(sites, odd_order, f"{dtype} of {number:g}"))
    return _worst(results)


def _worst(results: Sequence[AttackResult]) -> AttackResult:
    return max(results, key=lambda result: result.bound - result.claimed)


def own_account(own: OwnSite, folder: Path) -> AttackResult:
    """Many questions, and each of them twice: the ε of all answers together, against
    the owner's total.
    """
    releasing = own.releasing()
    site = releasing.synthetic_site(folder)
    orders = releasing.orders(site, QUESTIONS)
    replies = list(replies_to(site, [*orders, *orders]))
    privacy = own.config.privacy
    bound = composed_epsilon(replies, privacy.delta, privacy.adjacency)
    detail = f"{len(orders)} questions, each asked twice"
    return AttackResult(privacy.epsilon_budget, bound, detail)


def replies_to(
    site: AuditedSite, orders: Iterable[Order]
) -> Iterator[Release | Update]:
    """The client's replies, without refusals."""
    for order in orders:
        reply = site.send(order)
        if refused(reply):
            continue
        if isinstance(order, PrepareOrder):
            yield read_reply(Release, reply)
        else:
            yield read_reply(Update, reply)


def distinct(replies: Iterable[Release | Update]) -> list[Release | Update]:
    """Without repetitions: the same numbers sent twice reveal nothing new."""
    by_content: dict[bytes, Release | Update] = {}
    for reply in replies:
        by_content[_numbers(reply)] = reply
    return list(by_content.values())


def _numbers(reply: Release | Update) -> bytes:
    if isinstance(reply, Release):
        return reply.arrays["values"].tobytes()
    return reply.weights["parameters"].tobytes()


def composed_epsilon(
    replies: Sequence[Release | Update], delta: float, adjacency: str = "replace-one"
) -> float:
    """ε of everything that was sent, by the noise that it states."""
    if not replies:
        raise AssertionError("the client answered nothing, so nothing was attacked")
    mechanisms = []
    for reply in distinct(replies):
        if isinstance(reply, Release):
            mechanisms.append(Mechanism.of(reply))
        else:
            size = len(reply.weights["parameters"])
            mechanisms.append(Mechanism(reply.noise, reply.rate, reply.steps, size))
    return total_epsilon(mechanisms, delta, adjacency)
