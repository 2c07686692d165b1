"""Attacks on a client's account, to get more than its owner's ε, and on the ε that is
printed of it.

The ε proven is composed from what was sent. A statement must not cover less than that,
nor round it down.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from attacks.package.bounds import AuditConfig
from attacks.package.orders import head_order, score_order, scores, training
from fedaux.audit.releases import composed_epsilon, distinct, replies_to
from fedaux.audit.result import AttackResult
from fedaux.audit.site import SITE_NAME, AuditedSite, refused
from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.messages import (
    Federation,
    Order,
    Release,
    Reply,
    SecureTotal,
    Subtotal,
    TrainOrder,
    Update,
)
from fedaux.privacy.account_file import Entry
from fedaux.privacy.accounting import release_mechanism
from fedaux.privacy.ledger import Ledger
from fedaux.privacy.site_account import SiteAccount
from fedaux.runs.runner import in_process
from fedaux.runs.session import run_in_folder
from fedaux.server.loop import QuorumError
from fedaux.server.run_state import RunState
from fedaux.server.server import make_server
from helpers.audited_sites import audited_site, write_rows

LOST_ROUNDS = 3  # whose replies never arrive
# rounding to nearest makes each of them smaller
TOTALS = (0.10004, 0.2996, 1.0001, 1.23456, 2.0026, 9.9951, 12.341)


def rounds_raised(folder: Path, audit: AuditConfig) -> AttackResult:
    """The number of rounds is raised again and again, as a run that goes on for longer
    does.
    """
    site, replies = _site(folder, training(audit, train_rounds=0)), []
    for rounds in (2, 4, 8, 16):
        site = replace(site, config=replace(site.config, rounds=rounds))
        replies += list(
            replies_to(
                site, [head_order(site, round_) for round_ in range(1, rounds + 2)]
            )
        )
    bound = composed_epsilon(replies, audit.delta, "add-remove")
    detail = f"{len(replies)} rounds of training were answered"
    return AttackResult(audit.epsilon, bound, detail)


def repeated_requests(folder: Path, audit: AuditConfig) -> AttackResult:
    """One release is allowed: the same request twice, then others, then all of them
    once more.
    """
    site = _site(folder, scores(audit))
    orders = [score_order(site, scale) for scale in (1, 1, 2, 3, 4)]
    return AttackResult(
        audit.epsilon,
        composed_epsilon(list(replies_to(site, [*orders, *orders])), audit.delta),
    )


def wrong_size(folder: Path, audit: AuditConfig) -> AttackResult:
    """A request first states a size so large that its entry has more noise than the
    release will have.
    """
    settings = training(audit, epsilon=audit.epsilon / 1.2, train_rounds=2)
    site = _site(folder, {**settings, "method": "fedaux"})
    order = score_order(site)
    large = replace(order, size=_largest_size(site.config.privacy))
    replies = list(replies_to(site, [large, order, *_twice(site)]))
    bound = composed_epsilon(replies, audit.delta, "add-remove")
    detail = f"{len(replies)} replies, after a question of size {large.size:,}"
    return AttackResult(audit.epsilon, bound, detail)


def failed_release(folder: Path, audit: AuditConfig) -> AttackResult:
    """A release fails half-way, the owner allows more in the meantime, and it is
    requested again.
    """
    site = _site(
        folder,
        scores(
            replace(audit, epsilon=audit.epsilon / 4), epsilon_total=2 * audit.epsilon
        ),
    )
    order = score_order(site)
    if not refused(site.send(replace(order, extractor={}))):
        raise AssertionError("a client answered without an extractor")
    raised = replace(
        site.config, privacy=replace(site.config.privacy, epsilon=audit.epsilon)
    )
    replies = list(replies_to(replace(site, config=raised), [order]))
    return AttackResult(
        _account(replies[-1]).epsilon, composed_epsilon(replies, audit.delta)
    )


def old_account(folder: Path, audit: AuditConfig) -> AttackResult:
    """A site's account is replaced by an old copy, and the server has seen the newer
    one.
    """
    site = _site(folder, scores(audit))
    first = site.release(score_order(site))
    site.forget()
    again = replace(score_order(site, scale=2), known_entries=_account(first).entries)
    return AttackResult(
        audit.epsilon,
        composed_epsilon([first, *replies_to(site, [again])], audit.delta),
    )


def many_names(folder: Path, audit: AuditConfig) -> AttackResult:
    """One node has many clients, and all of them read the same records."""
    names = tuple(f"{SITE_NAME}-{number}" for number in range(10))
    site = _site(folder, scores(audit), names)
    replies = list(replies_to(site, [score_order(site, client=name) for name in names]))
    detail = f"{len(names)} names got {len(distinct(replies))} different releases"
    return AttackResult(audit.epsilon, composed_epsilon(replies, audit.delta), detail)


def reported_total(folder: Path, audit: AuditConfig) -> AttackResult:
    """The total that a client reports after scores and training, against what it
    sent.
    """
    settings = training(audit, epsilon=audit.epsilon / 4, train_rounds=2)
    site = _site(folder, {**settings, "method": "fedaux"})
    replies = list(replies_to(site, [score_order(site), *_twice(site)]))
    bound = composed_epsilon(replies, audit.delta, "add-remove")
    return AttackResult(_account(replies[-1]).epsilon, bound, f"{len(replies)} replies")


def _site(
    folder: Path, settings: dict[str, Any], names: tuple[str, ...] = (SITE_NAME,)
) -> AuditedSite:
    data = write_rows(folder / "data", np.array([(1, 0), (0, 1), (1, 1)]), [0, 1, 0])
    return audited_site(data, names=names, **settings)


def _twice(site: AuditedSite) -> list[TrainOrder]:
    """Two rounds of training, each asked for twice: a lost reply is no reason to draw
    again.
    """
    return [head_order(site, round_) for round_ in (1, 1, 2, 2)]


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


def lost_replies(folder: Path, audit: AuditConfig) -> AttackResult:
    """Clients train, their replies are lost, and another run is kept: the total that is
    printed must count them all.

    The same order would get the same reply, and cost nothing: each run asks for another
    learning rate.
    """
    for attempt in range(LOST_ROUNDS):
        with suppress(QuorumError):
            _run(folder, _run_config(audit), attempt, lost={"client-001"})
    state = _run(folder, _run_config(audit), LOST_ROUNDS)
    printed, accounts = (
        _printed_epsilon(state.ledger.statement()),
        _accounts(folder, audit),
    )
    detail = (
        f"{len(accounts[0].entries)} rounds were trained, {state.round} of them kept"
    )
    bound = max(account.epsilon for account in accounts)
    return AttackResult(printed, bound, detail)


def spare_clients(folder: Path, audit: AuditConfig) -> AttackResult:
    """A client that has spent more than all others is asked as a spare, works, and is
    not waited for.
    """
    config = _run_config(audit)
    spare = replace(
        config,
        fraction=0.5,
        federation=replace(config.federation, quorum=0.5, over_selection=1.0),
    )
    _run(folder, spare, 0, absent={"client-000"})
    statement = _run(folder, spare, 1, lost={"client-001"}).ledger.statement()
    covered = [
        a
        for a in _accounts(folder, audit)
        if f"{a.folder.name} did not answer" not in statement
    ]
    bound, detail = (
        max(a.epsilon for a in covered),
        f"the statement covers {len(covered)} of 2 clients",
    )
    return AttackResult(_printed_epsilon(statement), bound, detail)


def _run(
    folder: Path,
    config: Config,
    attempt: int,
    lost: Collection[str] = (),
    absent: Collection[str] = (),
) -> RunState:
    """The end of another run with the same clients, whose accounts outlive it; at
    another learning rate.
    """
    config = replace(config, local=replace(config.local, lr=0.001 * (1 + attempt)))
    server = make_server(config, cache=folder / "cache")
    federation = LossyFederation(in_process(config, folder, server.cache), lost, absent)
    return run_in_folder(folder / f"run-{attempt}", server, federation, None).state


def rounded_down(folder: Path, audit: AuditConfig) -> AttackResult:
    """A printed ε is a promise: rounded up, wherever it is printed."""
    pairs = [
        pair for epsilon in TOTALS for pair in _printed_and_true(folder, epsilon, audit)
    ]
    printed, true = min(pairs, key=lambda pair: pair[0] / pair[1])
    return AttackResult(printed, true, f"{len(pairs)} were compared")


def seeded(folder: Path, audit: AuditConfig) -> AttackResult:
    """Where noise came from a known seed, no output may put a number for ε beside
    it.
    """
    entry = Entry.of("", 10.0, 1.0, 1, 1, 2.0**30, unsafe=True)
    site = SiteAccount(folder, "replace-one", "record", audit.delta, (entry,))
    ledger = Ledger(
        {},
        {SITE_NAME: Account(math.inf, audit.delta, "replace-one", "record", 1)},
        {SITE_NAME: 1},
    )
    told = {
        "the site": site.to_dict()["epsilon"],
        "the run": ledger.to_dict()["epsilon"],
    }
    wrong = [who for who, epsilon in told.items() if epsilon is not None]
    wrong += [
        text
        for text in (site.statement(), ledger.statement())
        if not text.startswith("NOT PRIVATE")
    ]
    return AttackResult.exact(
        bool(wrong),
        f"a number is told by {', '.join(wrong)}" if wrong else "no number is told",
    )


@dataclass(frozen=True)
class LossyFederation:
    """A federation in which replies of some clients are `lost` after they did their
    work, and some are `absent`.
    """

    inner: Federation
    lost: Collection[str]
    absent: Collection[str]

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        present = [order for order in orders if order.client not in self.absent]
        for reply in list(self.inner.ask(present)):
            lost = not isinstance(reply, Subtotal | SecureTotal) and (
                reply.client in self.lost
            )
            if not lost:
                yield reply


def _accounts(folder: Path, audit: AuditConfig) -> list[SiteAccount]:
    return [
        SiteAccount.read(folder / "clients" / f"client-{number:03d}", audit.delta)
        for number in range(2)
    ]


def _run_config(audit: AuditConfig) -> Config:
    settings = training(
        audit, adjacency="replace-one", declared_records=0, train_rounds=LOST_ROUNDS + 2
    )
    return Config.from_dict(
        {
            **settings,
            "prototypes": [{"name": "mlp", "hidden": 4, "features": 4}],
            "data": {"clients": 2, "alpha": 10.0},
            "aux": {"limit": 50},
            "pretrain": {"epochs": 0},
            "local": {"batch_size": 1000},
            "federation": {"quorum": 1.0},
        }
    )


def _printed_epsilon(statement: str) -> float:
    """The ε of a statement: "(1.23, 1e-05)-differentially private", or "ε = 1.23
    at δ".
    """
    match = re.search(r"\(([\d.]+), ", statement) or re.search(
        r"ε = ([\d.]+) at", statement
    )
    if match is None:
        raise AssertionError(f"no ε is printed in: {statement}")
    return float(match[1])


def _printed_and_true(
    folder: Path, epsilon: float, audit: AuditConfig
) -> Iterator[tuple[float, float]]:
    """(printed, true) for one total: the run's statement and table, and the
    site's own.
    """
    ledger = Ledger(
        {},
        {SITE_NAME: Account(epsilon, audit.delta, "replace-one", "record", 1)},
        {SITE_NAME: 1},
    )
    yield _printed_epsilon(ledger.statement()), epsilon
    yield float(ledger.rows()[0][3]), epsilon
    entry = Entry.of("", 10.0 / epsilon, 1.0, 1, 1, 2.0**30, False)
    site = SiteAccount(folder, "replace-one", "record", audit.delta, (entry,))
    yield _printed_epsilon(site.statement()), site.epsilon
