"""A site's owner approves what a run will ask of the site, and the log of it shows
tampering.

With `federation.approval = "ask"` a server sends the plan of its run before anything
else (`messages.plan`), and every order is refused until the owner has approved that
plan (`fedaux site approve`), or a standing rule of the site's own settings has. The
owner reads who asks, the method, what leaves and at which ε. One approval covers one
run as proposed: its method, how many orders of which kind at most, and the hash of
everything that is fixed for the run. Each attempt of a secure sum counts as an order.
Another extractor, another standardisation, one more epoch: that is another plan.

The log, `vault/approvals.jsonl`, is only appended to. It names the hash of each order
that was begun, and of each that was answered. Each line has the authentication code,
under the site's key `vault/approvals.key`, of itself and the line before.
`approvals.head` has that of the last one, so that a log that was cut shows as well.
Approvals are read from the log alone: whoever lacks the key can forge none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from fedaux.client.proposals import Proposal
from fedaux.client.site import Site
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.failures import OrderError
from fedaux.core.io import locked, write_atomically
from fedaux.messages import DataOrder, RunPlan, SumTerms, TrainOrder, question
from fedaux.messages.plan import KIND_OF_ORDER, Ask
from fedaux.messages.types import Hash

LOG = "approvals.jsonl"
APPROVALS_KEY_FILE = "approvals.key"
HEAD = "approvals.head"
SHORT = 12  # digits of a plan's hash by which an owner may name it
# plans that may wait for the owner: a server cannot fill the disk with proposals
MOST_PENDING = 20


class ApprovalError(FedauxError, ValueError):
    """The site's owner has not approved what an order asks for."""

    code = Exit.PRIVACY


class LogError(FedauxError, ValueError):
    """The site's log is not what the site has written."""

    code = Exit.NEGATIVE


@dataclass(frozen=True)
class LogEntry:
    """One line of the log."""

    time: str
    event: str  # proposed, approved, refused (by the owner), begun, answered
    id: str
    by: str
    facts: dict[str, Any] = field(default_factory=dict, hash=False)


Log = tuple[list[LogEntry], str]  # all lines, and the code of the last one


class ApprovalLog:
    """The log below `folder`, a site's vault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entries(self) -> list[LogEntry]:
        """Read and verify all lines; raise a `LogError` if any was forged, cut, removed
        or put elsewhere.
        """
        with self._locked():
            return self._read()[0]

    def decide(self, start: str, event: str, by: str) -> None:
        """Approve or refuse the proposal whose id starts like this. The last word
        counts.
        """
        with self._locked():
            log = self._read()
            entries, _ = log
            proposed = {entry.id for entry in entries if entry.event == "proposed"}
            is_long_enough = len(start) >= SHORT
            matching = [
                name for name in proposed if is_long_enough and name.startswith(start)
            ]
            if not matching:
                raise ApprovalError(
                    f"Cannot decide on {start!r}: no plan has this id. Run `fedaux "
                    f"site pending` for the list. The first {SHORT} digits of one are "
                    "enough."
                )
            if len(matching) > 1:
                raise ApprovalError(
                    f"Cannot decide on {start!r}: {len(matching)} plans begin so. "
                    "Write all of the id."
                )
            self._append(log, event, matching[0], by)

    def pending(self) -> list[LogEntry]:
        """The proposals that no one has decided, oldest first."""
        return _undecided(self.entries())

    def propose(self, proposal: Proposal, standing: Sequence[str]) -> str:
        """Write down a plan that is new, and return what was decided: approved,
        refused, or pending.

        A standing rule approves a plan if it names everything that would leave.
        """
        with self._locked():
            log = self._read()
            entries, _ = log
            if all(entry.id != proposal.id for entry in entries):
                if len(_undecided(entries)) >= MOST_PENDING:
                    raise OrderError(
                        f"Cannot take another plan: {MOST_PENDING} of them wait for "
                        "this site's owner. Run `fedaux site refuse` to refuse them."
                    )
                log = self._append(
                    log, "proposed", proposal.id, "server", proposal.facts
                )
                entries, _ = log
            decision = _decision(entries, proposal.id)
            words = proposal.facts["words"]
            if decision == "pending" and words and set(words) <= set(standing):
                rule = f"standing rule {', '.join(standing)}"
                self._append(log, "approved", proposal.id, rule)
                decision = "approved"
        return decision

    def check_decision(self, plan: RunPlan) -> None:
        """Raise an `ApprovalError` unless the plan is approved."""
        with self._locked():
            _check_decision(self._read()[0], plan)

    def record(self, event: str, planned: PlannedOrder) -> None:
        """Write down that an order is begun or answered, once; raise an `ApprovalError`
        if the plan has no room for it.

        An order counts as soon as it is begun, whatever comes of it, since a failure
        may tell something too. And it is checked again when it is answered: computing
        may take hours, in which the owner may refuse the plan.
        """
        line: dict[str, Any] = {
            "kind": planned.ask.kind,
            "order": planned.identity,
            "ask": _ask_hash(planned.ask),
        }
        if isinstance(planned.order, TrainOrder):
            line["round"] = planned.order.round
        with self._locked():
            log = self._read()
            entries, _ = log
            _check_room(entries, planned)
            if planned.identity not in _recorded(entries, event, planned):
                self._append(log, event, planned.plan.hash, "site", line)

    @property
    def head(self) -> str:
        """What an owner may note elsewhere: the number of lines, and the code of the
        last.
        """
        with self._locked():
            entries, code = self._read()
        return f"{len(entries)}:{code}"

    def check_head(self, noted: str) -> None:
        """Raise a `LogError` unless the log continues from a head that was noted
        earlier.
        """
        self.entries()
        count, _, code = noted.partition(":")
        lines = self._lines()
        is_a_line = count.isdigit() and 0 < int(count) <= len(lines)
        if not is_a_line or not lines[int(count) - 1].startswith(f"{code} "):
            raise LogError(
                f"Cannot verify the log: it does not continue from the head {noted}, "
                "so it was rewritten or cut. Ask who can write to the site's folder, "
                "and restore a copy of the log."
            )

    def _append(
        self,
        log: Log,
        event: str,
        identity: str,
        by: str,
        facts: dict[str, Any] | None = None,
    ) -> Log:
        """Add a line to the log as it was read, on disk when this returns, and return
        the log with it.
        """
        entries, before = log
        moment = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")
        entry = LogEntry(moment, event, identity, by, facts or {})
        content = json.dumps(vars(entry), sort_keys=True)
        key = self._key
        code = _code(key, before, content)
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{code} {content}\n")
            file.flush()
            os.fsync(file.fileno())
        head = _head(key, len(entries) + 1, code)
        write_atomically(self.folder / HEAD, head.encode(), private=True)
        return [*entries, entry], code

    def _lines(self) -> list[str]:
        path = self.folder / LOG
        if not path.is_file():
            return []
        return path.read_text(encoding="utf-8").splitlines()

    def _read(self) -> Log:
        """(entries, code of the last one)."""
        path = self.folder / LOG
        lines = self._lines()
        key = self._key if lines else b""
        entries: list[LogEntry] = []
        before = ""
        code = ""
        for number, line in enumerate(lines, 1):
            written_code, _, content = line.partition(" ")
            before = code
            code = _code(key, before, content)
            if not hmac.compare_digest(written_code, code):
                raise LogError(
                    f"Cannot verify {path}, line {number}: it was changed, or lines "
                    "before it were removed or moved. Restore the newest copy of the "
                    "vault."
                )
            entries.append(LogEntry(**json.loads(content)))
        head_path = self.folder / HEAD
        head = head_path.read_text(encoding="utf-8") if head_path.is_file() else ""
        count = len(entries)
        # a process may be killed between the two writes, of the line and of the head
        heads = (_head(key, count, code), _head(key, count - 1, before))
        if head not in heads:
            written = head.partition(":")[0] or "none"
            raise LogError(
                f"Cannot verify {path}: it has {count} lines, and {written} were "
                "written, so it was cut or put back. Restore the newest copy of the "
                "vault."
            )
        return entries, code

    @property
    def _key(self) -> bytes:
        path = self.folder / APPROVALS_KEY_FILE
        if not path.is_file():
            if (self.folder / LOG).is_file():
                raise LogError(
                    f"Cannot verify the log: {path} is missing, and nothing is "
                    "answered without it. Restore the newest copy of the vault."
                )
            write_atomically(path, secrets.token_bytes(32), private=True)
        return path.read_bytes()

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self.folder / ".approvals.lock")


@dataclass(frozen=True, eq=False)
class PlannedOrder:
    """An order, and the part of a plan that has it.

    Attributes:
        order: The order.
        plan: The plan that it belongs to.
        ask: What of the plan covers it.
        start: A hash of the state that the client starts from, or "" without any.
    """

    order: DataOrder
    plan: RunPlan
    ask: Ask
    start: str = ""

    @classmethod
    def find(cls, order: DataOrder, site: Site, start: str = "") -> PlannedOrder:
        """Return the order with its part of the plan; raise an error if the plan does
        not have it.
        """
        plan = find_plan(order, site)
        ask = plan.ask_for(order)
        if ask is None:
            raise OrderError(
                "Cannot answer: the approved plan does not have this order. "
                f"{difference(order, plan)} Start the run again to propose a plan that "
                "has it."
            )
        if order.sum and SumTerms.from_json(order.sum).run != plan.run:
            raise OrderError(
                "Cannot answer: the secure sum belongs to another run than the "
                "approved plan. Start the run again."
            )
        return cls(order, plan, ask, start)

    @cached_property
    def identity(self) -> str:
        """Identify what is answered. Another attempt of a sum, or another state to
        start from, is another answer.
        """
        decisive = json.dumps([question(self.order), self.order.sum, self.start])
        return hashlib.sha256(decisive.encode()).hexdigest()


def check_approval(order: DataOrder, site: Site) -> None:
    """Raise an error unless the owner has approved the plan that an order belongs to,
    and the order is in the plan.
    """
    if site.config.federation.approval != "ask":
        return
    planned = PlannedOrder.find(order, site)
    ApprovalLog(site.vault).check_decision(planned.plan)


@contextmanager
def under_approval(
    order: DataOrder, site: Site, start: Callable[[], str] = str
) -> Iterator[None]:
    """Write an order to the log, where the owner is asked: before it is computed, and
    before its answer leaves.

    An `ApprovalError` means that it must not be computed, or must not leave: the plan
    has no room for it, or the owner has refused the plan. `start` returns a hash of the
    state that the client starts from.
    """
    if site.config.federation.approval != "ask":
        yield
        return
    log = ApprovalLog(site.vault)
    planned = PlannedOrder.find(order, site, start())
    log.record("begun", planned)
    yield
    log.record("answered", planned)


def find_plan(order: DataOrder, site: Site) -> RunPlan:
    """Return the plan that an order names, as this site has kept it."""
    path = plan_path(site, order.plan)
    if path is None or not path.is_file():
        raise ApprovalError(
            "Cannot answer: the order belongs to no plan that this site's owner was "
            "shown. Start the run with a server that sends its plan before any other "
            "order."
        )
    return RunPlan.from_json(path.read_text(encoding="utf-8"))


def keep_plan(plan: RunPlan, site: Site) -> None:
    """Keep a plan next to the log. Its name is its hash."""
    path = plan_path(site, plan.hash)
    assert path is not None
    write_atomically(path, plan.to_json().encode(), private=True)


def plan_path(site: Site, name: str) -> Path | None:
    """Return where a plan is kept, or None if the name is not the hash of one."""
    return None if Hash().problem(name) else site.vault / "plans" / f"{name}.json"


def difference(order: DataOrder, plan: RunPlan) -> str:
    """Say how an order differs from what the plan has for its kind."""
    kind = KIND_OF_ORDER[type(order)]
    asks = [ask for ask in plan.asks if ask.kind == kind]
    if not asks:
        return f"It has no orders to {kind}."
    ordered = Ask.of(order, 1).facts
    planned = asks[0].facts
    names = [
        name
        for name in sorted({*ordered, *planned})
        if ordered.get(name) != planned.get(name)
    ]
    return f"These differ: {', '.join(names)}."


def _head(key: bytes, lines: int, code: str) -> str:
    """Return what `approvals.head` has. Only the key makes another, for a log that was
    cut.
    """
    return f"{lines}:{_code(key, 'head', code)}" if lines > 0 else ""


def _code(key: bytes, before: str, content: str) -> str:
    """Return the authentication code of a line and of the line before it."""
    message = f"{before}\n{content}".encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def _check_decision(entries: Sequence[LogEntry], plan: RunPlan) -> None:
    decision = _decision(entries, plan.hash)
    if decision == "approved":
        return
    what = "was refused by" if decision == "refused" else "waits for"
    raise ApprovalError(
        f"Cannot answer: the plan of this run {what} this site's owner. Run `fedaux "
        f"site approve {plan.hash[:SHORT]}` to approve it."
    )


def _check_room(entries: Sequence[LogEntry], planned: PlannedOrder) -> None:
    _check_decision(entries, planned.plan)
    begun = _recorded(entries, "begun", planned)
    if planned.identity not in begun and len(begun) >= planned.ask.at_most:
        raise ApprovalError(
            f"Cannot answer: the approved plan has at most {planned.ask.at_most} "
            f"orders to {planned.ask.kind}, and all of them were begun. Start another "
            "run at the server."
        )


def _decision(entries: Sequence[LogEntry], identity: str) -> str:
    """Return the last word on a proposal: approved, refused or pending."""
    words = [
        entry.event
        for entry in entries
        if entry.id == identity and entry.event in ("approved", "refused")
    ]
    return words[-1] if words else "pending"


def _undecided(entries: Sequence[LogEntry]) -> list[LogEntry]:
    proposed = {entry.id: entry for entry in entries if entry.event == "proposed"}
    return [
        entry
        for entry in proposed.values()
        if _decision(entries, entry.id) == "pending"
    ]


def _recorded(
    entries: Sequence[LogEntry], event: str, planned: PlannedOrder
) -> set[str]:
    """Return the orders that were begun, or answered, for one part of a plan."""
    wanted = _ask_hash(planned.ask)
    return {
        entry.facts["order"]
        for entry in entries
        if entry.event == event
        and entry.id == planned.plan.hash
        and entry.facts["ask"] == wanted
    }


def _ask_hash(ask: Ask) -> str:
    return hashlib.sha256(json.dumps(vars(ask), sort_keys=True).encode()).hexdigest()
