"""Attacks on the account: more than it says, or than the owner allows. The ε proven is composed from what was sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedaux.algorithms.loop import NoAnswerError
from fedaux.algorithms.server import make_server
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import (
    AuxConfig,
    Config,
    DataConfig,
    FederationConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)
from fedaux.core.messages import Account, Federation, Order, PrepareOrder, Release, Reply, TrainOrder, Update
from fedaux.deploy.audit.attack_result import AttackResult, AuditConfig
from fedaux.deploy.audit.records import PASSING, passing, scores, training
from fedaux.deploy.audit.site import NAME, Site, refused, write_rows
from fedaux.experiments.runner import in_process, run_in, stored_state
from fedaux.flower.federation import read_reply
from fedaux.privacy.accounting import Mechanism, total_epsilon
from fedaux.privacy.budget import Entry
from fedaux.privacy.ledger import Ledger
from fedaux.privacy.release import release_mechanism
from fedaux.privacy.site_account import SiteAccount

LOST = 3  # rounds whose replies never arrive
PRINTED = (0.10004, 0.2996, 1.0001, 1.23456, 2.0026, 9.9951, 12.341)  # totals that rounding to nearest makes smaller


def lost_replies(folder: Path, terms: AuditConfig) -> AttackResult:
    """Clients train, their replies are lost, and the run goes on: the total that is printed must count them."""
    config, state = _run_config(terms), None
    for attempt in range(LOST + 1):
        server = make_server(config, cache=folder / "cache")
        federation: Federation = in_process(config, folder, server.cache)
        federation = federation if attempt == LOST else Lossy(federation, {"client-001"})
        try:
            state = run_in(folder, server, federation, stored_state(config, folder)).state
        except NoAnswerError:
            continue
    assert state is not None
    printed = _printed(state.ledger.statement())
    sent = _accounts(folder, terms)
    detail = f"{len(sent[0].entries)} rounds were trained, {state.round} of them kept"
    bound = max(one.epsilon for one in sent)
    return AttackResult.of("lost-replies", "the total that the server prints", printed, bound, 0, detail)


def spare_clients(folder: Path, terms: AuditConfig) -> AttackResult:
    """A client that has spent more than all others is asked as a spare, works, and is not waited for."""
    config = _run_config(terms)
    spare = replace(config, fraction=0.5, federation=replace(config.federation, quorum=0.5, over_selection=1.0))
    for which, lost in (("before", {"client-000"}), ("run", {"client-001"})):
        server = make_server(spare, cache=folder / "cache")
        clients = in_process(spare, folder, server.cache)  # their accounts outlive the first run
        federation = Lossy(clients, lost, absent=lost if which == "before" else set())
        state = run_in(folder / which, server, federation, None).state
    statement = state.ledger.statement()
    covered = [one for one in _accounts(folder, terms) if f"{one.folder.name} did not answer" not in statement]
    bound, detail = max(one.epsilon for one in covered), f"the statement covers {len(covered)} of 2 clients"
    return AttackResult.of("spare-clients", "the total, beside spare clients", _printed(statement), bound, 0, detail)


def rounds_raised(folder: Path, terms: AuditConfig) -> AttackResult:
    """The number of rounds is raised again and again, as a run that goes on for longer does."""
    site, sent = _site(folder, training(terms, train_rounds=0)), []
    for rounds in (2, 4, 8, 16):
        site = replace(site, config=replace(site.config, rounds=rounds))
        sent += list(_answered(site, [passing(site).train(np.zeros(6))] * (rounds + 1)))
    bound = _cost(sent, terms, "add-remove")
    detail = f"{len(sent)} rounds of training were answered"
    return AttackResult.of("rounds-raised", "the owner's total, by more rounds", terms.epsilon, bound, 0, detail)


def questions(folder: Path, terms: AuditConfig) -> AttackResult:
    """One release is allowed: the same question twice, then others, then all of them once more."""
    site = _site(folder, scores(terms))
    server = passing(site)
    orders = [server.prepare(server.map(column=np.array([1.0, -scale]))) for scale in (1, 1, 2, 3, 4)]
    sent = list(_answered(site, [*orders, *orders]))
    return AttackResult.of("questions", "the owner's total, by asking again", terms.epsilon, _cost(sent, terms), 0)


def wrong_size(folder: Path, terms: AuditConfig) -> AttackResult:
    """A question is first asked with a size so large that its entry states more noise than the answer will have."""
    settings = training(terms, epsilon=terms.epsilon / 1.2, train_rounds=2)
    site = _site(folder, {**settings, "method": "fedaux"})
    server = passing(site)
    order = server.prepare(server.map(column=np.array([1, -1])))
    large = replace(order, size=_largest_size(site.config.privacy))
    sent = list(_answered(site, [large, order, *[server.train(np.zeros(6))] * 2]))
    bound, detail = _cost(sent, terms, "add-remove"), f"{len(sent)} replies, after a question of size {large.size:,}"
    return AttackResult.of("wrong-size", "the owner's total, by a false size", terms.epsilon, bound, 0, detail)


def half_way(folder: Path, terms: AuditConfig) -> AttackResult:
    """A question fails half-way, the owner allows more in the meantime, and it is asked again."""
    site = _site(folder, scores(replace(terms, epsilon=terms.epsilon / 4), epsilon_total=2 * terms.epsilon))
    server = passing(site)
    order = server.prepare(server.map(column=np.array([1, -1])))
    if not refused(site.send(replace(order, extractor={}))):
        raise AssertionError("a client answered without an extractor")
    raised = replace(site.config, privacy=replace(site.config.privacy, epsilon=terms.epsilon))
    sent = list(_answered(replace(site, config=raised), [order]))
    claimed, bound = _account(sent[-1]).epsilon, _cost(sent, terms)
    return AttackResult.of("half-way", "the total that the client reports, after a failure", claimed, bound, 0)


def old_copy(folder: Path, terms: AuditConfig) -> AttackResult:
    """A site whose account was put back to an old copy, asked by a server that has met the newer one."""
    site = _site(folder, scores(terms))
    server = passing(site)
    first = site.release(server.prepare(server.map(column=np.array([1.0, -1.0]))))
    site.forget()
    again = replace(server.prepare(server.map(column=np.array([1.0, -2.0]))), heard=_account(first).entries)
    sent = [first, *_answered(site, [again])]
    return AttackResult.of("old-copy", "the owner's total, by an old account", terms.epsilon, _cost(sent, terms), 0)


def many_names(folder: Path, terms: AuditConfig) -> AttackResult:
    """One node speaks for many names, and all of them have the same records."""
    names = tuple(f"{NAME}-{number}" for number in range(10))
    site = _site(folder, scores(terms), names)
    server = passing(site)
    orders = [server.prepare(server.map(column=np.array([1, -1])), name) for name in names]
    sent = list(_answered(site, orders))
    detail = f"{len(names)} names got {len(_distinct(sent))} different releases"
    return AttackResult.of("many-names", "the owner's total, by names", terms.epsilon, _cost(sent, terms), 0, detail)


def reported(folder: Path, terms: AuditConfig) -> AttackResult:
    """What a client says of itself, after scores and training, beside what it sent."""
    settings = training(terms, epsilon=terms.epsilon / 4, train_rounds=2)
    site = _site(folder, {**settings, "method": "fedaux"})
    server = passing(site)
    orders: list[Order] = [server.prepare(server.map(column=np.array([1, -1]))), *[server.train(np.zeros(6))] * 2]
    sent = list(_answered(site, orders))
    claimed, bound = _account(sent[-1]).epsilon, _cost(sent, terms, "add-remove")
    return AttackResult.of("reported", "the total that the client reports", claimed, bound, 0, f"{len(sent)} replies")


def printed(folder: Path, terms: AuditConfig) -> AttackResult:
    """A printed ε is a promise: rounded up, wherever it is printed."""
    pairs = [pair for epsilon in PRINTED for pair in _all_printed(folder, epsilon, terms)]
    said, true = min(pairs, key=lambda pair: pair[0] / pair[1])
    return AttackResult.of(
        "printed", "ε as statements and tables print it", said, true, 0, f"{len(pairs)} were compared"
    )


@dataclass(frozen=True)
class Lossy:
    """A federation in which replies of some clients are `lost` after they did their work, and some are `absent`."""

    inner: Federation
    lost: set[str]
    absent: set[str] = field(default_factory=set)

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        replies = list(self.inner.ask([order for order in orders if order.client not in self.absent]))
        yield from (reply for reply in replies if reply.client not in self.lost)


def _accounts(folder: Path, terms: AuditConfig) -> list[SiteAccount]:
    return [SiteAccount.read(folder / "clients" / f"client-{number:03d}", terms.delta) for number in range(2)]


def _site(folder: Path, settings: dict[str, Any], names: tuple[str, ...] = (NAME,)) -> Site:
    data = write_rows(folder / "data", np.array([(1, 0), (0, 1), (1, 1)]), [0, 1, 0], ("a", "b"))
    return Site.at(data, PASSING, names=names, **settings)


def _answered(site: Site, orders: Iterable[PrepareOrder | TrainOrder]) -> Iterator[Release | Update]:
    """What the client sends; what it refuses is left out."""
    for order in orders:
        reply = site.send(order)
        if not refused(reply):
            yield read_reply(Release, reply) if isinstance(order, PrepareOrder) else read_reply(Update, reply)


def _distinct(sent: Iterable[Release | Update]) -> list[Release | Update]:
    """The same numbers sent twice tell nothing new."""
    arrays = (one.arrays["values"] if isinstance(one, Release) else one.weights["parameters"] for one in sent)
    return list({array.tobytes(): one for array, one in zip(arrays, sent, strict=True)}.values())


def _cost(sent: Sequence[Release | Update], terms: AuditConfig, adjacency: str = "replace-one") -> float:
    """ε of everything that was sent, by the noise that it states."""
    if not sent:
        raise AssertionError("the client answered nothing, so nothing was attacked")
    mechanisms = [
        Mechanism.of(one)
        if isinstance(one, Release)
        else Mechanism(one.noise, one.rate, one.steps, len(one.weights["parameters"]))
        for one in _distinct(sent)
    ]
    return total_epsilon(mechanisms, terms.delta, adjacency)


def _largest_size(privacy: PrivacyConfig) -> int:
    """The largest power of two for which there is a calibration at all."""
    for power in range(62, 0, -1):
        try:
            release_mechanism(2**power, privacy)
        except ValueError:
            continue
        return int(2**power)
    raise AssertionError("there is no size for which a release could be made")


def _account(reply: Release | Update) -> Account:
    return Account.from_json(reply.account)


def _run_config(terms: AuditConfig) -> Config:
    privacy: dict[str, Any] = {"epsilon": terms.epsilon, "epsilon_total": terms.epsilon, "delta": terms.delta}
    return Config(
        method="fedavg",
        rounds=1,
        head_only=True,
        prototypes=(PrototypeSpec.of("mlp", hidden=4, features=4),),
        data=DataConfig(clients=2, alpha=10.0),
        aux=AuxConfig(limit=50),
        pretrain=PretrainConfig(epochs=0),
        local=LocalConfig(batch_size=1000),
        privacy=PrivacyConfig(**privacy, private_training=True, train_rounds=LOST + 2, sample_rate=1.0),
        federation=FederationConfig(quorum=1.0),
    )


def _printed(statement: str) -> float:
    """The ε of a statement: "(1.23, 1e-05)-differentially private", or "ε = 1.23 at δ"."""
    found = re.search(r"\(([\d.]+), ", statement) or re.search(r"ε = ([\d.]+) at", statement)
    if found is None:
        raise AssertionError(f"no ε is printed in: {statement}")
    return float(found[1])


def _all_printed(folder: Path, epsilon: float, terms: AuditConfig) -> Iterator[tuple[float, float]]:
    """(printed, true) for one total: the run's statement and table, and the site's own."""
    account = Account(epsilon, terms.delta, "replace-one", "record", 1)
    ledger = Ledger({}, {NAME: account}, {NAME: 1})
    yield _printed(ledger.statement()), epsilon
    yield float(ledger.rows()[0][3]), epsilon
    entry = Entry("", 10.0 / epsilon, 1.0, 1, 1, 2.0**30, False)
    site = SiteAccount(folder, "replace-one", "record", terms.delta, (entry,))
    yield _printed(site.statement()), site.epsilon
