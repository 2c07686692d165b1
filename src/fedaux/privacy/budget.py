"""A client's account: all that it ever sent under noise, kept on its own disk, written before a record is read.

One file, `account.jsonl`: a line that says whom the promise protects, then one line for every release and every private
training. A client composes all of them, and refuses whatever would bring the total above its owner's ε.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from fedaux.config.schema import Config, PrivacyConfig
from fedaux.core.io import write_atomically
from fedaux.core.messages import Account, Release
from fedaux.privacy.accounting import BudgetError, Mechanism, round_up, total_epsilon

FILE = "account.jsonl"
NEIGHBOURS = {
    ("replace-one", "record"): "one record of a client exchanged for any other",
    ("add-remove", "record"): "one record of a client added or removed, at a declared size",
    ("replace-one", "person"): "all records of one person at a client exchanged for any others",
    ("add-remove", "person"): "all records of one person at a client added or removed, at a declared size",
}


@dataclass(frozen=True)
class Entry:
    """One release (`request` is a hash of what was asked for) or one round of private training (no request).

    With no steps it costs nothing: it says that the release above it is stored, and may be sent.
    """

    request: str
    noise: float
    rate: float
    steps: int
    size: int
    grid: float
    unsafe: bool  # noise from a known seed

    @property
    def mechanism(self) -> Mechanism:
        return Mechanism(self.noise, self.rate, self.steps, self.size, self.grid)


@dataclass(frozen=True)
class BudgetStore:
    """The account in `folder`, under the settings of the client's owner."""

    folder: Path
    privacy: PrivacyConfig

    def release(
        self, request: str, mechanism: Mechanism, make: Callable[[], Release], known_entries: int = 0
    ) -> Release:
        """The stored answer to this request, or a new one if the total allows it.

        Noise drawn afresh for a repeated question could be averaged away; an answer stored before it is sent cannot.
        An attempt that fails half-way counts: its entry was written before `make` reads a record. It is taken up again
        only at the same noise: an order that lied about its size, settings of another day, or an answer that was sent
        and then lost from the disk, make a new entry.
        """
        with self._locked() as entries:
            self._check_known(entries, known_entries)
            path = self.folder / f"release-{hashlib.sha256(request.encode()).hexdigest()[:24]}.json"
            begun, asked = self._entry(request, mechanism), [entry for entry in entries if entry.request == request]
            tried = list(takewhile(lambda entry: entry.steps > 0, reversed(asked)))  # since an answer was last sent
            if not asked or (not path.exists() and begun not in tried):
                self._enter(entries, begun, "another release is refused: ")
                tried.append(begun)
            if not path.exists():
                write_atomically(path, _stored(make()), private=True)
            if tried:
                self._append(replace(begun, steps=0))
            return replace(_recall(path), account=self._account(self._read()).to_json())

    def train(self, plan: Callable[[list[Entry]], Mechanism], known_entries: int = 0) -> tuple[Mechanism, Account]:
        """Plan one round of private training in view of all entries, and enter it."""
        with self._locked() as entries:
            self._check_known(entries, known_entries)
            mechanism = plan(entries)
            self._enter(entries, self._entry("", mechanism), "training is refused: ")
            return mechanism, self._account(self._read())

    def account(self) -> Account:
        """The client's own statement, as it stands. Who never sent anything under noise gets no folder for it."""
        if not (self.folder / FILE).exists():
            return self._account([])
        with self._locked() as entries:
            return self._account(entries)

    def _entry(self, request: str, mechanism: Mechanism) -> Entry:
        m, unsafe = mechanism, self.privacy.unsafe_seed >= 0
        return Entry(request, m.noise_multiplier, m.sample_rate, m.steps, m.size, m.grid, unsafe)

    def _account(self, entries: list[Entry]) -> Account:
        privacy = self.privacy
        unsafe = any(entry.unsafe for entry in entries)
        epsilon = math.inf if unsafe else self._total(entries)
        return Account(epsilon, privacy.delta, privacy.adjacency, privacy.unit, _count(entries))

    def _total(self, entries: list[Entry]) -> float:
        return total_epsilon([entry.mechanism for entry in entries], self.privacy.delta, self.privacy.adjacency)

    def _check_known(self, entries: list[Entry], known_entries: int) -> None:
        """A server that was told of more than is written here has met a newer copy of this account."""
        if known_entries > _count(entries):
            raise BudgetError(
                f"{self.folder / FILE} has {_count(entries)} entries, but the server has heard of "
                f"{known_entries}: this is an old copy of the account. Put the newest one back; until then nothing "
                "is sent."
            )

    def _enter(self, entries: list[Entry], entry: Entry, refused: str) -> None:
        total, cap = self._total([*entries, entry]), self.privacy.epsilon_budget
        if total > cap:
            so_far = round_up(self._total(entries))
            raise BudgetError(
                f"{refused}with it, all that this client ever sent would cost ε = {round_up(total)} at δ = "
                f"{self.privacy.delta:g}, and its owner allows {cap:g}. So far it is {so_far}; every entry is in "
                f"{self.folder / FILE}. Only the owner can allow more, by privacy.epsilon_total in the settings."
            )
        if not (self.folder / FILE).exists():
            head = {"adjacency": self.privacy.adjacency, "unit": self.privacy.unit}
            write_atomically(self.folder / FILE, _line(head), private=True)
        self._append(entry)

    def _append(self, entry: Entry) -> None:
        with (self.folder / FILE).open("ab") as file:
            file.write(_line(asdict(entry)))
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _locked(self) -> Iterator[list[Entry]]:
        """All entries, while no other process can add one."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._read()

    def _read(self) -> list[Entry]:
        head, entries = read_account(self.folder, mend=True)
        ours = {"adjacency": self.privacy.adjacency, "unit": self.privacy.unit}
        if head and head != ours:
            raise BudgetError(
                f"{self.folder / FILE} was kept for {head}, the settings now say {ours}: what one promise cost cannot "
                "be told in terms of another. Set them back."
            )
        return entries


def account_folder(config: Config, vault: Path, client: str) -> Path:
    """One data set, one account: names of a site that read the same records share one, whatever they are called."""
    return vault if config.data.partition == "own" and "{client}" not in config.data.path else vault / client


def read_account(folder: Path, mend: bool = False) -> tuple[dict[str, str], list[Entry]]:
    """(whom the promise protects, all entries); nothing at all where there is no account yet.

    A last line that is not whole was being written when the machine stopped, so before anything was read for it:
    it is left out, and with `mend` taken off the file.
    """
    path = folder / FILE
    if not path.exists():
        return {}, []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if mend and len(whole) < len(text):
        os.truncate(path, len(whole))
    try:
        head, *lines = [json.loads(line) for line in whole.splitlines()] or [{}]
        return dict(head), [Entry(**line) for line in lines]
    except (ValueError, TypeError) as error:
        raise BudgetError(
            f"{path} is damaged: without it the client does not know what it has sent, and sends nothing. Restore the "
            "newest copy."
        ) from error


@dataclass(frozen=True)
class SiteAccount:
    """An account as its owner reads it."""

    folder: Path
    adjacency: str
    unit: str
    delta: float
    entries: tuple[Entry, ...]

    @classmethod
    def read(cls, folder: Path, delta: float) -> SiteAccount:
        head, entries = read_account(folder)
        entries = [entry for entry in entries if entry.steps > 0]
        return cls(folder, head.get("adjacency", "replace-one"), head.get("unit", "record"), delta, tuple(entries))

    @property
    def epsilon(self) -> float:
        return total_epsilon([entry.mechanism for entry in self.entries], self.delta, self.adjacency)

    def rows(self) -> list[tuple[str, ...]]:
        """(number, what, noise, sampling rate, steps) of every entry."""
        return [
            (
                str(number),
                "private training" if not entry.request else "release",
                f"{entry.noise:.4g}",
                f"{entry.rate:.3g}",
                str(entry.steps),
            )
            for number, entry in enumerate(self.entries, 1)
        ]

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "folder": str(self.folder), "epsilon": self.epsilon, "statement": self.statement()}

    def statement(self) -> str:
        if any(entry.unsafe for entry in self.entries):
            return "NOT PRIVATE: noise was drawn from a known seed (privacy.unsafe_seed), so anybody can remove it."
        releases = sum(bool(entry.request) for entry in self.entries)
        return (
            f"All that this client ever sent under noise (releases: {releases}, rounds of private training: "
            f"{len(self.entries) - releases}) costs at most ε = {round_up(self.epsilon)} at δ = {self.delta:g} for "
            f"{NEIGHBOURS[self.adjacency, self.unit]}, whether or not it arrived. Models that were trained without "
            "noise are not in this account, and are not covered."
        )


def _count(entries: Sequence[Entry]) -> int:
    """Those that cost something."""
    return sum(entry.steps > 0 for entry in entries)


def _line(facts: Mapping[str, object]) -> bytes:
    return json.dumps(facts).encode() + b"\n"


def _stored(made: Release) -> bytes:
    facts = {key: value for key, value in vars(made).items() if key not in ("arrays", "account")}
    return json.dumps({**facts, "values": made.arrays["values"].tolist()}).encode()


def _recall(path: Path) -> Release:
    stored = json.loads(path.read_text(encoding="utf-8"))
    values = np.asarray(stored.pop("values"), dtype=np.int64)
    return Release(**stored, account="", arrays={"values": values})
