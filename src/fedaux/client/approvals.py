"""A site's owner approves what is asked of the site, and everything that leaves is in a log that shows tampering.

With `federation.approval = "ask"` an order is refused until its proposal was approved: by the owner (`fedaux site
approve`), or by a standing rule of the site's own settings. A proposal is all that decides what an order reveals, but
not the round, so that one approval lasts for a run; another run is another proposal.

The log, `vault/approvals.jsonl`, is only appended to. Each line has the authentication code, under the site's key
`vault/approvals.key`, of itself and the line before; `approvals.head` has that of the last one, so that a log that was
cut shows as well. Approvals are read from the log alone: whoever lacks the key can forge none.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from fedaux.client.site import Site
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import locked, write_atomically
from fedaux.core.messages import DataOrder, PrepareOrder, SumsOrder, SumTerms, TrainOrder
from fedaux.models.inference import fingerprint_arrays

LOG, KEY, HEAD = "approvals.jsonl", "approvals.key", "approvals.head"
CHANGING = {"client", "round", "lr", "seed", "known_entries", "known_signature", "last_round", "sum"}  # between orders
R = TypeVar("R")
Asked = TypeVar("Asked", bound=DataOrder)


class ApprovalError(FedauxError, ValueError):
    """The site's owner has not approved what an order asks for."""

    code = Exit.PRIVACY


class LogError(FedauxError, ValueError):
    """The site's log is not what the site has written."""

    code = Exit.NEGATIVE


@dataclass(frozen=True)
class Proposal:
    """What an order asks for: `rule` is what standing rules are compared with, such as train:fedaux."""

    rule: str
    facts: dict[str, Any] = field(hash=False)

    @property
    def id(self) -> str:
        return hashlib.sha256(json.dumps([self.rule, self.facts], sort_keys=True).encode()).hexdigest()[:16]

    @classmethod
    def of(cls, order: DataOrder, site: Site) -> Proposal:
        """Return the proposal of an order: its scalars, and what the site's own settings allow it to cost."""
        scalars = {
            name: value
            for name, value in vars(order).items()
            if name not in CHANGING and isinstance(value, str | int | float | bool)
        }
        privacy = site.config.privacy
        if isinstance(order, PrepareOrder):
            scalars["public"] = fingerprint_arrays(order.public)
            rule, cost = f"release:{order.scorer}", f"ε = {privacy.epsilon:g}, once for the same request"
        elif isinstance(order, SumsOrder):
            rule, cost = f"sums:{order.sends}", "sums WITHOUT noise"
        else:
            private = f"of the total ε = {privacy.epsilon_budget:g}" if privacy.private_training else "WITHOUT noise"
            rule, cost = f"train:{order.method}", f"models {private}"
        if order.sum:  # in a secure sum: with whom; in which run and attempt, or in all rounds of a training
            terms = SumTerms.from_json(order.sum)
            once = "" if isinstance(order, TrainOrder) else f"; run {terms.run}, attempt {terms.attempt}"
            scalars["secure sum"] = f"{terms.threshold} of {', '.join(sorted(terms.sites))}{once}"
        return cls(rule, {**scalars, "leaves": cost})


@dataclass(frozen=True)
class Entry:
    """One line of the log."""

    time: str
    event: str  # proposed, approved, refused (by the owner), answered, rejected (an order, for lack of approval)
    id: str
    by: str
    facts: dict[str, Any] = field(default_factory=dict, hash=False)


Log = tuple[list[Entry], str]  # all lines, and the code of the last one


class ApprovalLog:
    """The log below `folder`, a site's vault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def entries(self) -> list[Entry]:
        """Read and verify all lines; raise a `LogError` if any was forged, cut, removed or put elsewhere."""
        with self._locked():
            return self._read()[0]

    def append(self, event: str, proposal: Proposal | str, by: str) -> None:
        """Add a line, on disk when this returns."""
        with self._locked():
            self._append(self._read(), event, proposal, by)

    def decide(self, identity: str, event: str, by: str) -> None:
        """Approve or refuse a proposal; the last word counts."""
        with self._locked():
            log = self._read()
            if identity not in {entry.id for entry in log[0]}:
                raise ApprovalError(f"there is no proposal {identity}; `fedaux site pending` lists them")
            self._append(log, event, identity, by)

    def pending(self) -> list[Entry]:
        """The proposals that nobody has decided, oldest first."""
        decided, found = set[str](), dict[str, Entry]()
        for entry in self.entries():
            if entry.event == "proposed":
                found.setdefault(entry.id, entry)
            elif entry.event in ("approved", "refused"):
                decided.add(entry.id)
        return [entry for identity, entry in found.items() if identity not in decided]

    def admit(self, proposal: Proposal, standing: tuple[str, ...]) -> None:
        """Raise an `ApprovalError` unless the proposal is approved; write down one that is new."""
        with self._locked():
            log = self._read()
            words = [entry.event for entry in log[0] if entry.id == proposal.id]
            last = next((word for word in reversed(words) if word in ("approved", "refused")), "")
            if not words:
                log = self._append(log, "proposed", proposal, "server")
            if not last and (rule := next((one for one in standing if fnmatchcase(proposal.rule, one)), "")):
                log = self._append(log, "approved", proposal.id, f"standing rule {rule}")
                last = "approved"
            if last != "approved":
                self._append(log, "rejected", proposal.id, "site")
        if last != "approved":
            what = "was refused by" if last else "waits for"
            raise ApprovalError(f"{proposal.rule} {what} this site's owner: fedaux site approve {proposal.id}")

    @property
    def head(self) -> str:
        """What an owner may note elsewhere: the number of lines, and the code of the last."""
        with self._locked():
            entries, code = self._read()
        return f"{len(entries)}:{code}"

    def check_head(self, noted: str) -> None:
        """Raise a `LogError` unless the log goes on from a head that was noted earlier."""
        self.entries()
        count, _, code = noted.partition(":")
        lines = (self.folder / LOG).read_text(encoding="utf-8").splitlines() if (self.folder / LOG).is_file() else []
        if not (count.isdigit() and 0 < int(count) <= len(lines) and lines[int(count) - 1].startswith(f"{code} ")):
            raise LogError(f"the log does not go on from the head {noted}: it was written anew, or cut")

    def _append(self, log: Log, event: str, proposal: Proposal | str, by: str) -> Log:
        """Add a line to the log as it was read, and return the log with it."""
        entries, before = log
        identity = proposal if isinstance(proposal, str) else proposal.id
        facts = {} if isinstance(proposal, str) else {"rule": proposal.rule, **proposal.facts}
        moment = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")
        entry = Entry(moment, event, identity, by, facts)
        text = json.dumps(vars(entry), sort_keys=True)
        code = self._code(before, text)
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{code} {text}\n")
            file.flush()
            os.fsync(file.fileno())
        write_atomically(self.folder / HEAD, self._head(len(entries) + 1, code).encode(), private=True)
        return [*entries, entry], code

    def _read(self) -> Log:
        """(entries, code of the last one)."""
        path, code, before, found = self.folder / LOG, "", "", list[Entry]()
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            told, _, text = line.partition(" ")
            before, code = code, self._code(code, text)
            if not hmac.compare_digest(told, code):
                raise LogError(f"{path}, line {number}: it was changed, or lines before it were removed or moved")
            found.append(Entry(**json.loads(text)))
        head = (self.folder / HEAD).read_text(encoding="utf-8") if (self.folder / HEAD).is_file() else ""
        killed = len(found) - 1, before  # a process, between the two writes
        if head not in {self._head(*one) for one in ((len(found), code), killed)}:
            written = head.partition(":")[0] or "none"
            raise LogError(f"{path} has {len(found)} lines, and {written} were written: it was cut or put back")
        return found, code

    def _head(self, lines: int, code: str) -> str:
        """What `approvals.head` has; only the key makes another, for a log that was cut."""
        return f"{lines}:{self._code('head', code)}" if lines > 0 else ""

    def _code(self, before: str, text: str) -> str:
        return hmac.new(self._key, f"{before}\n{text}".encode(), hashlib.sha256).hexdigest()

    @property
    def _key(self) -> bytes:
        path = self.folder / KEY
        if not path.is_file():
            if (self.folder / LOG).is_file():
                raise LogError(f"{path} is missing: the log cannot be verified, and nothing is answered without it")
            write_atomically(path, secrets.token_bytes(32), private=True)
        return path.read_bytes()

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self.folder / ".approvals.lock")


def with_approval(handler: Callable[[Asked, Site], R]) -> Callable[[Asked, Site], R]:
    """Answer an order only as the owner has approved, and log it; where the settings do not ask, do nothing."""

    @wraps(handler)
    def asked(order: Asked, site: Site) -> R:
        settings = site.config.federation
        if settings.approval != "ask":
            return handler(order, site)
        log, proposal = ApprovalLog(site.vault), Proposal.of(order, site)
        log.admit(proposal, settings.standing)
        reply = handler(order, site)
        log.append("answered", proposal.id, f"round {getattr(order, 'round', 0)}")
        return reply

    return asked
