"""Attacks on a client's account: to get more than its owner's ε. The ε proven is composed from what was sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.audit.attack_result import AttackResult, AuditConfig
from fedaux.audit.records import IDENTITY, head_order, score_order, scores, training
from fedaux.audit.site import NAME, Site, refused, write_rows
from fedaux.config.sections import PrivacyConfig
from fedaux.core.messages import Account, Order, PrepareOrder, Release, TrainOrder, Update
from fedaux.flower.federation import read_reply
from fedaux.privacy.accounting import Mechanism, release_mechanism, total_epsilon


def rounds_raised(folder: Path, audit: AuditConfig) -> AttackResult:
    """The number of rounds is raised again and again, as a run that goes on for longer does."""
    site, replies = _site(folder, training(audit, train_rounds=0)), []
    for rounds in (2, 4, 8, 16):
        site = replace(site, config=replace(site.config, rounds=rounds))
        replies += list(replies_to(site, [head_order(site, round_) for round_ in range(1, rounds + 2)]))
    bound = composed_epsilon(replies, audit, "add-remove")
    detail = f"{len(replies)} rounds of training were answered"
    return AttackResult(audit.epsilon, bound, detail)


def repeated_requests(folder: Path, audit: AuditConfig) -> AttackResult:
    """One release is allowed: the same request twice, then others, then all of them once more."""
    site = _site(folder, scores(audit))
    orders = [score_order(site, scale) for scale in (1, 1, 2, 3, 4)]
    return AttackResult(audit.epsilon, composed_epsilon(list(replies_to(site, [*orders, *orders])), audit))


def wrong_size(folder: Path, audit: AuditConfig) -> AttackResult:
    """A request first states a size so large that its entry has more noise than the release will have."""
    settings = training(audit, epsilon=audit.epsilon / 1.2, train_rounds=2)
    site = _site(folder, {**settings, "method": "fedaux"})
    order = score_order(site)
    large = replace(order, size=_largest_size(site.config.privacy))
    replies = list(replies_to(site, [large, order, *_twice(site)]))
    bound = composed_epsilon(replies, audit, "add-remove")
    detail = f"{len(replies)} replies, after a question of size {large.size:,}"
    return AttackResult(audit.epsilon, bound, detail)


def failed_release(folder: Path, audit: AuditConfig) -> AttackResult:
    """A release fails half-way, the owner allows more in the meantime, and it is requested again."""
    site = _site(folder, scores(replace(audit, epsilon=audit.epsilon / 4), epsilon_total=2 * audit.epsilon))
    order = score_order(site)
    if not refused(site.send(replace(order, extractor={}))):
        raise AssertionError("a client answered without an extractor")
    raised = replace(site.config, privacy=replace(site.config.privacy, epsilon=audit.epsilon))
    replies = list(replies_to(replace(site, config=raised), [order]))
    return AttackResult(_account(replies[-1]).epsilon, composed_epsilon(replies, audit))


def old_account(folder: Path, audit: AuditConfig) -> AttackResult:
    """A site's account is replaced by an old copy, and the server has seen the newer one."""
    site = _site(folder, scores(audit))
    first = site.release(score_order(site))
    site.forget()
    again = replace(score_order(site, scale=2), heard=_account(first).entries)
    return AttackResult(audit.epsilon, composed_epsilon([first, *replies_to(site, [again])], audit))


def many_names(folder: Path, audit: AuditConfig) -> AttackResult:
    """One node has many clients, and all of them read the same records."""
    names = tuple(f"{NAME}-{number}" for number in range(10))
    site = _site(folder, scores(audit), names)
    replies = list(replies_to(site, [score_order(site, client=name) for name in names]))
    detail = f"{len(names)} names got {len(_distinct(replies))} different releases"
    return AttackResult(audit.epsilon, composed_epsilon(replies, audit), detail)


def reported_total(folder: Path, audit: AuditConfig) -> AttackResult:
    """The total that a client reports after scores and training, against what it sent."""
    settings = training(audit, epsilon=audit.epsilon / 4, train_rounds=2)
    site = _site(folder, {**settings, "method": "fedaux"})
    replies = list(replies_to(site, [score_order(site), *_twice(site)]))
    bound = composed_epsilon(replies, audit, "add-remove")
    return AttackResult(_account(replies[-1]).epsilon, bound, f"{len(replies)} replies")


def _site(folder: Path, settings: dict[str, Any], names: tuple[str, ...] = (NAME,)) -> Site:
    data = write_rows(folder / "data", np.array([(1, 0), (0, 1), (1, 1)]), [0, 1, 0], ("a", "b"))
    return Site.at(data, IDENTITY, names=names, **settings)


def _twice(site: Site) -> list[TrainOrder]:
    """Two rounds of training, each asked for twice: a lost reply is no reason to draw again."""
    return [head_order(site, round_) for round_ in (1, 1, 2, 2)]


def replies_to(site: Site, orders: Iterable[Order]) -> Iterator[Release | Update]:
    """The client's replies, without refusals."""
    for order in orders:
        reply = site.send(order)
        if not refused(reply):
            yield read_reply(Release, reply) if isinstance(order, PrepareOrder) else read_reply(Update, reply)


def _distinct(replies: Sequence[Release | Update]) -> list[Release | Update]:
    """Without repetitions: the same numbers sent twice reveal nothing new."""
    arrays = (r.arrays["values"] if isinstance(r, Release) else r.weights["parameters"] for r in replies)
    return list({array.tobytes(): reply for array, reply in zip(arrays, replies, strict=True)}.values())


def composed_epsilon(replies: Sequence[Release | Update], audit: AuditConfig, adjacency: str = "replace-one") -> float:
    """ε of everything that was sent, by the noise that it states."""
    if not replies:
        raise AssertionError("the client answered nothing, so nothing was attacked")
    mechanisms = [
        Mechanism.of(r) if isinstance(r, Release) else Mechanism(r.noise, r.rate, r.steps, len(r.weights["parameters"]))
        for r in _distinct(replies)
    ]
    return total_epsilon(mechanisms, audit.delta, adjacency)


def _largest_size(privacy: PrivacyConfig) -> int:
    """The largest power of two that can be calibrated."""
    for power in range(62, 0, -1):
        try:
            release_mechanism(2**power, privacy)
        except ValueError:
            continue
        return int(2**power)
    raise AssertionError("there is no size for which a release could be made")


def _account(reply: Release | Update) -> Account:
    return Account.from_json(reply.account)
