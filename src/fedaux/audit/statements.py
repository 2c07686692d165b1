"""Attacks on the printed ε: a statement that covers less than what clients sent, or rounds down."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedaux.audit.attack_result import AttackResult, AuditConfig
from fedaux.audit.records import training
from fedaux.audit.site import NAME
from fedaux.config.schema import Config
from fedaux.core.messages import Account, Federation, Order, Reply, Subtotal
from fedaux.privacy.account import Entry, SiteAccount
from fedaux.privacy.ledger import Ledger
from fedaux.runs.runner import in_process, run_in_folder
from fedaux.server.loop import NoAnswerError
from fedaux.server.server import make_server

LOST_ROUNDS = 3  # whose replies never arrive
TOTALS = (0.10004, 0.2996, 1.0001, 1.23456, 2.0026, 9.9951, 12.341)  # rounding to nearest makes each of them smaller


def lost_replies(folder: Path, audit: AuditConfig) -> AttackResult:
    """Clients train, their replies are lost, and another run is kept: the total that is printed must count them all.

    The same order would get the same reply, and cost nothing: each run asks for another learning rate.
    """
    state = None
    for attempt in range(LOST_ROUNDS + 1):
        config = _other_order(_run_config(audit), attempt)
        server = make_server(config, cache=folder / "cache")
        federation: Federation = in_process(config, folder, server.cache)  # accounts outlive the runs
        federation = federation if attempt == LOST_ROUNDS else LossyFederation(federation, {"client-001"})
        try:
            state = run_in_folder(folder / f"run-{attempt}", server, federation, None).state
        except NoAnswerError:
            continue
    assert state is not None
    printed, accounts = _printed_epsilon(state.ledger.statement()), _accounts(folder, audit)
    detail = f"{len(accounts[0].entries)} rounds were trained, {state.round} of them kept"
    bound = max(account.epsilon for account in accounts)
    return AttackResult(printed, bound, detail)


def spare_clients(folder: Path, audit: AuditConfig) -> AttackResult:
    """A client that has spent more than all others is asked as a spare, works, and is not waited for."""
    config = _run_config(audit)
    spare = replace(config, fraction=0.5, federation=replace(config.federation, quorum=0.5, over_selection=1.0))
    for attempt, (which, lost) in enumerate((("before", {"client-000"}), ("run", {"client-001"}))):
        asked = _other_order(spare, attempt)
        server = make_server(asked, cache=folder / "cache")
        clients = in_process(asked, folder, server.cache)  # their accounts outlive the first run
        federation = LossyFederation(clients, lost, absent=lost if which == "before" else set())
        state = run_in_folder(folder / which, server, federation, None).state
    statement = state.ledger.statement()
    covered = [a for a in _accounts(folder, audit) if f"{a.folder.name} did not answer" not in statement]
    bound, detail = max(a.epsilon for a in covered), f"the statement covers {len(covered)} of 2 clients"
    return AttackResult(_printed_epsilon(statement), bound, detail)


def _other_order(config: Config, attempt: int) -> Config:
    return replace(config, local=replace(config.local, lr=config.local.lr * (1 + attempt)))


def rounded_down(folder: Path, audit: AuditConfig) -> AttackResult:
    """A printed ε is a promise: rounded up, wherever it is printed."""
    pairs = [pair for epsilon in TOTALS for pair in _printed_and_true(folder, epsilon, audit)]
    printed, true = min(pairs, key=lambda pair: pair[0] / pair[1])
    return AttackResult(printed, true, f"{len(pairs)} were compared")


def seeded(folder: Path, audit: AuditConfig) -> AttackResult:
    """Where noise came from a known seed, no output may put a number for ε beside it."""
    entry = Entry("", 10.0, 1.0, 1, 1, 2.0**30, unsafe=True)
    site = SiteAccount(folder, "replace-one", "record", audit.delta, (entry,))
    ledger = Ledger({}, {NAME: Account(math.inf, audit.delta, "replace-one", "record", 1)}, {NAME: 1})
    told = {"the site": site.to_dict()["epsilon"], "the run": ledger.to_dict()["epsilon"]}
    wrong = [who for who, epsilon in told.items() if epsilon is not None]
    wrong += [text for text in (site.statement(), ledger.statement()) if not text.startswith("NOT PRIVATE")]
    return AttackResult.exact(bool(wrong), f"a number is told by {', '.join(wrong)}" if wrong else "no number is told")


@dataclass(frozen=True)
class LossyFederation:
    """A federation in which replies of some clients are `lost` after they did their work, and some are `absent`."""

    inner: Federation
    lost: set[str]
    absent: set[str] = field(default_factory=set)

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        replies = list(self.inner.ask([order for order in orders if order.client not in self.absent]))
        yield from (reply for reply in replies if isinstance(reply, Subtotal) or reply.client not in self.lost)


def _accounts(folder: Path, audit: AuditConfig) -> list[SiteAccount]:
    return [SiteAccount.read(folder / "clients" / f"client-{number:03d}", audit.delta) for number in range(2)]


def _run_config(audit: AuditConfig) -> Config:
    settings = training(audit, adjacency="replace-one", declared_records=0, train_rounds=LOST_ROUNDS + 2)
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
    """The ε of a statement: "(1.23, 1e-05)-differentially private", or "ε = 1.23 at δ"."""
    match = re.search(r"\(([\d.]+), ", statement) or re.search(r"ε = ([\d.]+) at", statement)
    if match is None:
        raise AssertionError(f"no ε is printed in: {statement}")
    return float(match[1])


def _printed_and_true(folder: Path, epsilon: float, audit: AuditConfig) -> Iterator[tuple[float, float]]:
    """(printed, true) for one total: the run's statement and table, and the site's own."""
    ledger = Ledger({}, {NAME: Account(epsilon, audit.delta, "replace-one", "record", 1)}, {NAME: 1})
    yield _printed_epsilon(ledger.statement()), epsilon
    yield float(ledger.rows()[0][3]), epsilon
    entry = Entry("", 10.0 / epsilon, 1.0, 1, 1, 2.0**30, False)
    site = SiteAccount(folder, "replace-one", "record", audit.delta, (entry,))
    yield _printed_epsilon(site.statement()), site.epsilon
