"""A client's privacy account on its own disk: every release and every round of private
training, ever.

Each is entered before anything that leaves is computed from a record. The client
composes all entries, and refuses any that would exceed its owner's ε. A vault holds

    account.jsonl   the adjacency and the unit of the promise, then one line for each
                    entry; lines are only ever added
    account.key     signs the number of entries: the server keeps the signature, and
                    shows it with every order
    release-*.json  each release, stored before it is sent (`client.answers`)

An answer is stored first, and then its entry is closed by a line with its hash. Only an
answer that such a line vouches for is sent. So what was stored without one can never
leave beside the answer that its entry has paid for.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Literal, TypeVar

from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.core.io import locked, write_atomically
from fedaux.privacy.accounting import (
    BudgetError,
    Mechanism,
    round_up,
    total_epsilon,
    training_noise_multiplier,
)
from fedaux.privacy.units import NEIGHBOURS

FILE = "account.jsonl"
ACCOUNT_KEY_FILE, KEY_SIZE = "account.key", 32  # bytes
# the request of an entry that stands for one that is missing (`BudgetStore.write_off`)
LOST = "lost"
TRAINING = "training "  # begins the request of a round of private training
SUM_REQUEST = "secure sum "  # is in the request of a site's part in a secure sum
_NO_COST = 2.0**30  # noise of a lost entry if nothing was left of the budget
# of the noise of lost entries that would just use up the total, so that nothing is left
# of it
_NOISE_SLACK = 0.995
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """One release or one round of private training; `request` is a hash of what was
    asked for.

    The fields are those of a line of the file. A line without steps costs nothing: it
    says what has become of the entry above it (`state`).
    """

    request: str
    noise: float
    rate: float
    steps: int
    size: int
    grid: float
    unsafe: bool  # noise from a known seed
    answer: str = ""  # the hash of what may be sent

    @classmethod
    def of(cls, request: str, mechanism: Mechanism, unsafe: bool) -> Entry:
        return cls(
            request,
            mechanism.noise_multiplier,
            mechanism.sample_rate,
            mechanism.steps,
            mechanism.size,
            mechanism.grid,
            unsafe,
        )

    @property
    def mechanism(self) -> Mechanism:
        return Mechanism(self.noise, self.rate, self.steps, self.size, self.grid)

    @property
    def state(self) -> Literal["entered", "stored", "spent"]:
        """What this line says: an answer is entered and costs, or the one entered above
        is stored and may be sent, or it is spent, because what was drawn is lost.
        """
        if self.steps > 0:
            return "entered"
        return "stored" if self.answer else "spent"

    def stored(self, content: bytes) -> Entry:
        """Return the line that vouches for the stored answer of this entry."""
        return replace(self, steps=0, answer=_hash(content))

    def spent(self) -> Entry:
        """Return the line that says that this entry has no answer and never will."""
        return replace(self, steps=0)

    @property
    def trains(self) -> bool:
        return self.request.startswith(TRAINING)

    @property
    def kind(self) -> str:
        """The kind of entry, in the words of a report."""
        if self.trains:
            return "private training"
        return "written off" if self.request == LOST else "release"


def read_account(
    folder: Path, repair: bool = False
) -> tuple[dict[str, str], list[Entry]]:
    """Read an account: (header, entries), both empty if there is no account yet.

    An incomplete last line was being written when the machine stopped, so before any
    record was read for it: it is ignored, and with `repair` removed from the file.
    """
    path = folder / FILE
    if not path.exists():
        return {}, []
    text = path.read_bytes()
    complete = text[: text.rfind(b"\n") + 1]
    if repair and len(complete) < len(text):
        os.truncate(path, len(complete))
    try:
        header, *lines = [json.loads(line) for line in complete.splitlines()] or [{}]
        return dict(header), [Entry(**line) for line in lines]
    except (ValueError, TypeError) as error:
        raise BudgetError(
            f"{path} is damaged: without it the client does not know what it has sent, "
            "and sends nothing. Restore the newest copy."
        ) from error


def count_costly(entries: Sequence[Entry]) -> int:
    """Count the entries that cost something."""
    return sum(entry.state == "entered" for entry in entries)


def account_epsilon(entries: Sequence[Entry], delta: float, adjacency: str) -> float:
    """Return ε of all entries composed; ∞ if any noise came from a known seed."""
    if any(entry.unsafe for entry in entries):
        return math.inf
    return total_epsilon([entry.mechanism for entry in entries], delta, adjacency)


def account_folder(config: Config, vault: Path, client: str) -> Path:
    """Return the folder of a client's account. Clients of a site that read the same
    records share one account.
    """
    is_site = config.data.partition == "own"
    if is_site and "{client}" not in config.data.path:
        return vault
    return vault / client


@dataclass(frozen=True)
class BudgetStore:
    """The account in `folder`, under the settings of the client's owner."""

    folder: Path
    privacy: PrivacyConfig
    # what a person is (`data.person`), where the unit of privacy is one
    person: str = ""

    def answer(
        self,
        request: str,
        path: Path,
        plan: Callable[[list[Entry]], Mechanism],
        read: Callable[[], T],
        draw: Callable[[Mechanism, T], bytes],
        known_entries: int = 0,
        signature: str = "",
    ) -> bytes:
        """Return the stored answer to a request, or enter it in the account, compute it
        and store it.

        Fresh noise for a repeated request could be averaged away. An answer that is
        stored before it is sent cannot.

        There is one rule for whatever goes wrong. An entry from which nothing has left
        serves the next attempt: that of a process which was killed, or of an attempt
        that could not read its data or write its answer. If drawing fails, perhaps
        because of what was drawn, the entry is spent. So is that of an answer which was
        stored and then lost from the disk.

        Args:
            request: What is asked. The same request gets the same answer.
            path: Where the answer is stored.
            plan: Chooses the noise, given all entries that cost something.
            read: Reads what the answer is made from. The request is in the account by
                then.
            draw: Makes the answer from that, with noise.
            known_entries: The number of entries that the server has heard of.
            signature: This client's own signature of that number.

        Returns:
            The answer, which is on disk.
        """
        with self._locked() as entries:
            self._check_known(entries, known_entries, signature)
            unsafe = self.privacy.unsafe_seed >= 0
            earlier = [
                entry
                for entry in entries
                if entry.request == request and entry.unsafe == unsafe
            ]
            attempts = _open_attempts(earlier)
            content = path.read_bytes() if earlier and path.exists() else None
            if content is not None:
                if _hash(content) in {entry.answer for entry in earlier}:
                    return content
                # the process was killed before it could say that this is stored
                if attempts:
                    self._append(attempts[0].stored(content))
                    return content
            # an open attempt is replaced by this one, so it does not count beside it
            before = [
                entry
                for entry in entries
                if entry.state == "entered"
                and all(entry is not attempt for attempt in attempts)
            ]
            entry = Entry.of(request, plan(before), unsafe)
            if entry not in attempts:
                self._check_total(entries, entry)
                # what an older entry was for is not paid for by this one
                path.unlink(missing_ok=True)
                self._append(entry)
            data = read()
            try:
                content = draw(entry.mechanism, data)
            except Exception:
                self._append(entry.spent())
                raise
            write_atomically(path, content, private=True)
            self._append(entry.stored(content))
            return content

    def account(self) -> Account:
        """Return the current total. No folder is made for a client that never sent
        anything under noise.
        """
        return self._account(self._read(repair=False))

    def write_off(self, known_entries: int) -> int:
        """Enter the entries that are missing from `known_entries`, at the cost of the
        remaining budget; count them.

        This is for an owner whose newest vault is lost for good. The server knows how
        many entries there were, but not what they cost. With the existing entries they
        cost at most the owner's ε: more would have been refused.
        """
        privacy = self.privacy
        with self._locked() as entries:
            there = count_costly(entries)
            missing = known_entries - there
            if missing < 1:
                raise BudgetError(
                    f"{self.folder} has {there} entries: of {known_entries}, none is "
                    "missing"
                )
            target = (privacy.epsilon_budget, privacy.delta, privacy.adjacency)
            before = [entry.mechanism for entry in entries]
            try:
                noise = _NOISE_SLACK * training_noise_multiplier(
                    *target, 1.0, missing, before=before
                )
            except BudgetError:  # nothing was left
                noise = _NO_COST
            unsafe = privacy.unsafe_seed >= 0
            for _ in range(missing):
                self._append(Entry.of(LOST, Mechanism(noise), unsafe))
        return missing

    def _account(self, entries: list[Entry]) -> Account:
        privacy = self.privacy
        count = count_costly(entries)
        epsilon = account_epsilon(entries, privacy.delta, privacy.adjacency)
        signature = sign(self.folder, count)
        return Account(
            epsilon, privacy.delta, privacy.adjacency, privacy.unit, count, signature
        )

    def _total(self, entries: list[Entry]) -> float:
        """Return the total to compare with the owner's ε. Seeded noise counts as
        secret, or no study could continue.
        """
        return total_epsilon(
            [entry.mechanism for entry in entries],
            self.privacy.delta,
            self.privacy.adjacency,
        )

    def _check_known(
        self, entries: list[Entry], known_entries: int, signature: str
    ) -> None:
        """Raise an error if the server proves more entries than there are: it has seen
        a newer copy of this account.
        """
        if known_entries > count_costly(entries) and verify_count(
            self.folder, known_entries, signature
        ):
            raise BudgetError(
                f"{self.folder / FILE} has {count_costly(entries)} entries, but the "
                f"server has heard of {known_entries}: this is an old copy of the "
                "account. Put the newest one back; until then nothing is sent. If "
                "there is none: `fedaux deploy write-off --help`."
            )
        create_key(self.folder)

    def _check_total(self, entries: list[Entry], entry: Entry) -> None:
        """Raise an error unless the owner's ε allows another entry."""
        refusal = (
            "training is refused: " if entry.trains else "another release is refused: "
        )
        total = self._total([*entries, entry])
        cap = self.privacy.epsilon_budget
        if total > cap:
            raise BudgetError(
                f"{refusal}with it, all that this client ever sent would cost ε = "
                f"{round_up(total)} at δ = {self.privacy.delta:g}, and its owner "
                f"allows {cap:g}. So far it is {round_up(self._total(entries))}; every "
                f"entry is in {self.folder / FILE}. Only the owner can allow more, by "
                "privacy.epsilon_total in the settings."
            )

    def _append(self, entry: Entry) -> None:
        path = self.folder / FILE
        if not path.exists():
            write_atomically(path, _to_line(self._header), private=True)
        with path.open("ab") as file:
            file.write(_to_line(asdict(entry)))
            file.flush()
            os.fsync(file.fileno())

    @property
    def _header(self) -> dict[str, str]:
        header: dict[str, str] = {
            "adjacency": self.privacy.adjacency,
            "unit": self.privacy.unit,
        }
        if self.privacy.unit == "person" and self.person:
            header["person"] = self.person
        return header

    @contextmanager
    def _locked(self) -> Iterator[list[Entry]]:
        """Yield all entries, while no other process can add one."""
        with locked(self.folder / ".lock"):
            yield self._read()

    def _read(self, repair: bool = True) -> list[Entry]:
        header, entries = read_account(self.folder, repair)
        expected = self._header
        # of an older release, or read without settings
        if "person" not in header or "person" not in expected:
            header = {name: value for name, value in header.items() if name != "person"}
            expected = {
                name: value for name, value in expected.items() if name != "person"
            }
        if header and header != expected:
            raise BudgetError(
                f"Cannot use the account {self.folder / FILE}: it was kept for "
                f"{header}, and the settings now say {expected}. What one promise cost "
                "cannot be expressed in terms of another. Set them back."
            )
        return entries


def _open_attempts(entries: Sequence[Entry]) -> list[Entry]:
    """Return the attempts of one request of which nothing was stored or spent yet, the
    last one first.
    """
    return list(takewhile(lambda entry: entry.state == "entered", reversed(entries)))


def _hash(answer: bytes) -> str:
    return hashlib.sha256(answer).hexdigest()


def _to_line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def create_key(folder: Path) -> None:
    """Create the key unless there is one. It is not synced: a key damaged by a power
    cut counts as missing.

    The key lies beside the account and never changes, so that even an old copy of the
    account recognises all later signatures.
    """
    if not _key(folder):
        with os.fdopen(
            os.open(
                folder / ACCOUNT_KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
            ),
            "wb",
        ) as file:
            file.write(secrets.token_bytes(KEY_SIZE))


def sign(folder: Path, entries: int) -> str:
    """Return the client's signature of the number of entries in its account; "" if
    there is no key yet.
    """
    key = _key(folder)
    if not key:
        return ""
    message = f"fedaux account: {entries}".encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def verify_count(folder: Path, entries: int, signature: str) -> bool:
    """Whether this account has had this number of entries, as far as it can tell.

    A number that this client has not signed is rejected, since a server can make one
    up. An account without a key accepts every number: it is new because the old one was
    lost, or has lost its key.
    """
    expected = sign(folder, entries)
    believed = not expected or hmac.compare_digest(
        expected.encode(), signature.encode()
    )
    if not believed:
        log.warning(
            (
                "the server says that the account in %s has had %d entries, and does "
                "not show its signature: ignored"
            ),
            folder,
            entries,
        )
    return believed


def _key(folder: Path) -> bytes:
    try:
        key = (folder / ACCOUNT_KEY_FILE).read_bytes()
    except FileNotFoundError:
        return b""
    return key if len(key) == KEY_SIZE else b""


@dataclass(frozen=True)
class SiteAccount:
    """An account as its owner sees it, in `fedaux privacy report --vault`: a row for
    each entry, and a statement.
    """

    folder: Path
    adjacency: str
    unit: str
    delta: float
    entries: tuple[Entry, ...]

    @classmethod
    def read(cls, folder: Path, delta: float) -> SiteAccount:
        header, entries = read_account(folder)
        costly = tuple(entry for entry in entries if entry.state == "entered")
        return cls(
            folder,
            header.get("adjacency", "replace-one"),
            header.get("unit", "record"),
            delta,
            costly,
        )

    @property
    def epsilon(self) -> float:
        """The total ε; ∞ if any noise came from a known seed."""
        return account_epsilon(self.entries, self.delta, self.adjacency)

    def rows(self) -> list[tuple[str, ...]]:
        """Return (number, kind, noise multiplier, sample rate, steps) of every
        entry.
        """
        return [
            (
                str(number),
                entry.kind,
                f"{entry.noise:.4g}",
                f"{entry.rate:.3g}",
                str(entry.steps),
            )
            for number, entry in enumerate(self.entries, 1)
        ]

    def to_dict(self) -> dict[str, object]:
        """Return the account for JSON, which has no ∞: an unbounded ε is null."""
        epsilon = self.epsilon if self.epsilon < math.inf else None
        return {
            **asdict(self),
            "folder": str(self.folder),
            "epsilon": epsilon,
            "statement": self.statement(),
        }

    def statement(self) -> str:
        if any(entry.unsafe for entry in self.entries):
            return "NOT PRIVATE: noise was drawn from a known seed (privacy.unsafe_seed), so anybody can remove it."
        kinds = Counter(entry.kind for entry in self.entries)
        summed = sum(SUM_REQUEST in entry.request for entry in self.entries)
        sums = (
            f" Of these, {summed} went into secure sums: each costs this against the "
            "server together with as many other sites as federation.colluders allowed."
        )
        lost = f", written off: {kinds['written off']}" if kinds["written off"] else ""
        return (
            "All that this client ever sent under noise (releases: "
            f"{kinds['release']}, rounds of private training: "
            f"{kinds['private training']}{lost}) costs at most ε = "
            f"{round_up(self.epsilon)} at δ = {self.delta:g} for "
            f"{NEIGHBOURS[self.adjacency, self.unit]}, whether or not it arrived. "
            "Models that were trained without noise, and sums of features, are not in "
            f"this account, and are not covered.{sums if summed else ''}"
        )
