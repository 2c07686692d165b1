"""A client's privacy budget on its own disk: every release and every round of private training, ever.

Each is entered in the account (`account_file`) before a record is read. A client composes all of them, and refuses
whatever would exceed its owner's ε.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.core.io import write_atomically
from fedaux.core.messages import Account, Release
from fedaux.privacy.account_file import FILE, TRAINING, Entry, count_costly, read_account, to_line
from fedaux.privacy.account_key import create_key, is_believed, sign
from fedaux.privacy.accounting import BudgetError, Mechanism, round_up, total_epsilon


@dataclass(frozen=True)
class BudgetStore:
    """The account in `folder`, under the settings of the client's owner."""

    folder: Path
    privacy: PrivacyConfig

    def release(
        self,
        request: str,
        mechanism: Mechanism,
        make: Callable[[], Release],
        known_entries: int = 0,
        signature: str = "",
    ) -> Release:
        """The stored release for this request, or a new one if the total allows it.

        Fresh noise for a repeated request could be averaged away; a release that is stored before it is sent cannot.
        An attempt that fails half-way counts: its entry was written before `make` reads a record. It is resumed only at
        the same noise: an order with a false size, settings that changed since, or a release that was sent and then
        lost from the disk, make a new entry.
        """
        with self._locked() as entries:
            self._check_known(entries, known_entries, signature)
            path = self.folder / f"release-{hashlib.sha256(request.encode()).hexdigest()[:24]}.json"
            entry, earlier = self._entry(request, mechanism), [e for e in entries if e.request == request]
            unsent = _unsent(earlier)
            if not earlier or (not path.exists() and entry not in unsent):
                self._add(entries, entry, "another release is refused: ")
                unsent.append(entry)
            if not path.exists():
                write_atomically(path, _serialize(make()), private=True)
            if unsent:
                self._append(replace(entry, steps=0))
            return replace(_deserialize(path), account=self._account(self._read()).to_json())

    def train(
        self,
        request: str,
        path: Path,
        plan: Callable[[list[Entry]], Mechanism],
        make: Callable[[Mechanism], bytes],
        known_entries: int = 0,
        signature: str = "",
    ) -> None:
        """Have the result of one round of private training in `path`: the one that is there, or a new one.

        `plan` chooses the noise in view of all that was spent, the round is entered, and `make` trains. A process that
        was killed in between has sent nothing: the same request goes on at the noise of its entry. If `make` itself
        fails, perhaps for what it drew, its entry is closed, and another attempt is another entry.
        """
        with self._locked() as entries:
            self._check_known(entries, known_entries, signature)
            request, unsafe = TRAINING + request, self.privacy.unsafe_seed >= 0
            earlier = [entry for entry in entries if entry.request == request and entry.unsafe == unsafe]
            unsent = _unsent(earlier)
            if not earlier or not path.exists():
                if not unsent:
                    unsent = [self._entry(request, plan([entry for entry in entries if entry.steps > 0]))]
                    self._add(entries, unsent[0], "training is refused: ")
                try:
                    content = make(unsent[0].mechanism)
                except Exception:
                    self._append(replace(unsent[0], steps=0))
                    raise
                write_atomically(path, content, private=True)
            if unsent:
                self._append(replace(unsent[0], steps=0))

    def account(self) -> Account:
        """The current total. A client that never sent anything under noise gets no folder for it."""
        return self._account(self._read(repair=False))

    def _entry(self, request: str, mechanism: Mechanism) -> Entry:
        m, unsafe = mechanism, self.privacy.unsafe_seed >= 0
        return Entry(request, m.noise_multiplier, m.sample_rate, m.steps, m.size, m.grid, unsafe)

    def _account(self, entries: list[Entry]) -> Account:
        privacy = self.privacy
        epsilon = math.inf if any(entry.unsafe for entry in entries) else self._total(entries)
        count = count_costly(entries)
        return Account(epsilon, privacy.delta, privacy.adjacency, privacy.unit, count, sign(self.folder, count))

    def _total(self, entries: list[Entry]) -> float:
        return total_epsilon([entry.mechanism for entry in entries], self.privacy.delta, self.privacy.adjacency)

    def _check_known(self, entries: list[Entry], known_entries: int, signature: str) -> None:
        """A server that can show more entries than there are has seen a newer copy of this account."""
        if known_entries > count_costly(entries) and is_believed(self.folder, known_entries, signature):
            raise BudgetError(
                f"{self.folder / FILE} has {count_costly(entries)} entries, but the server has heard of "
                f"{known_entries}: this is an old copy of the account. Put the newest one back; until then nothing "
                "is sent. If there is none: `fedaux deploy write-off --help`."
            )
        create_key(self.folder)

    def _add(self, entries: list[Entry], entry: Entry, refusal: str) -> None:
        total, cap = self._total([*entries, entry]), self.privacy.epsilon_budget
        if total > cap:
            raise BudgetError(
                f"{refusal}with it, all that this client ever sent would cost ε = {round_up(total)} at δ = "
                f"{self.privacy.delta:g}, and its owner allows {cap:g}. So far it is "
                f"{round_up(self._total(entries))}; every entry is in {self.folder / FILE}. Only the owner can allow "
                "more, by privacy.epsilon_total in the settings."
            )
        self.enter(entry)

    def enter(self, entry: Entry) -> None:
        """Whatever the total then is."""
        if not (self.folder / FILE).exists():
            write_atomically(self.folder / FILE, to_line(self._header), private=True)
        self._append(entry)

    @property
    def _header(self) -> dict[str, str]:
        return {"adjacency": self.privacy.adjacency, "unit": self.privacy.unit}

    def _append(self, entry: Entry) -> None:
        with (self.folder / FILE).open("ab") as file:
            file.write(to_line(asdict(entry)))
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _locked(self) -> Iterator[list[Entry]]:
        """All entries, while no other process can add one."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._read()

    def _read(self, repair: bool = True) -> list[Entry]:
        header, entries = read_account(self.folder, repair)
        if header and header != self._header:
            raise BudgetError(
                f"{self.folder / FILE} was kept for {header}, the settings now say {self._header}: what one promise "
                "cost cannot be expressed in terms of another. Set them back."
            )
        return entries


def account_folder(config: Config, vault: Path, client: str) -> Path:
    """One data set, one account: clients of a site that read the same records share it, whatever their names."""
    return vault if config.data.partition == "own" and "{client}" not in config.data.path else vault / client


def _unsent(entries: Sequence[Entry]) -> list[Entry]:
    """Of the entries of one request, the attempts since the last that was closed."""
    return list(takewhile(lambda entry: entry.steps > 0, reversed(entries)))


def _serialize(release: Release) -> bytes:
    fields = {key: value for key, value in vars(release).items() if key not in ("arrays", "account")}
    return json.dumps({**fields, "values": release.arrays["values"].tolist()}).encode()


def _deserialize(path: Path) -> Release:
    fields = json.loads(path.read_text(encoding="utf-8"))
    values = np.asarray(fields.pop("values"), dtype=np.int64)
    return Release(**fields, account="", arrays={"values": values})
