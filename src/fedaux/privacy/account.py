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
leave next to the answer that its entry has paid for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.core.io import locked, write_atomically
from fedaux.privacy.account_file import (
    FILE,
    LOST,
    Entry,
    account_epsilon,
    count_costly,
    hash_of,
    read_account,
    to_line,
)
from fedaux.privacy.account_key import create_key, sign, verify_count
from fedaux.privacy.accounting import (
    BudgetError,
    Mechanism,
    round_up,
    total_epsilon,
    training_noise_multiplier,
)

_NO_COST = 2.0**30  # noise of a lost entry if nothing was left of the budget
# of the noise of lost entries that would just use up the total, so that nothing is left
# of it
_NOISE_SLACK = 0.995
T = TypeVar("T")


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
        before_entry: Callable[[], None] = lambda: None,
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
            before_entry: Called before an entry that the owner's ε allows. What it
                finds is for the owner, and must not change the answer.

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
            if earlier and path.exists():
                content = path.read_bytes()
                if hash_of(content) in {entry.answer for entry in earlier}:
                    return content
                # the process was killed before it could say that this is stored
                if attempts:
                    self._append(attempts[0].stored(content))
                    return content
            # an open attempt is replaced by this one, so it does not count next to it
            before = [
                entry
                for entry in entries
                if entry.state == "entered"
                and all(entry is not attempt for attempt in attempts)
            ]
            entry = Entry(request, plan(before), unsafe)
            if entry not in attempts:
                self._check_total(entries, entry)
                before_entry()
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

        This is for an owner whose newest vault is lost. The server knows how
        many entries there were, but not what they cost. With the existing entries they
        cost at most the owner's ε: more would have been refused.
        """
        privacy = self.privacy
        with self._locked() as entries:
            there = count_costly(entries)
            missing = known_entries - there
            if missing < 1:
                raise BudgetError(
                    f"Cannot write off entries: {self.folder} has {there} entries, and "
                    f"of {known_entries}, none is missing. Leave the account as it is."
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
            entry = Entry(LOST, Mechanism(noise), unsafe)
            for _ in range(missing):
                self._append(entry)
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
        mechanisms = [entry.mechanism for entry in entries]
        return total_epsilon(mechanisms, self.privacy.delta, self.privacy.adjacency)

    def _check_known(
        self, entries: list[Entry], known_entries: int, signature: str
    ) -> None:
        """Raise an error if the server proves more entries than there are: it has seen
        a newer copy of this account.
        """
        count = count_costly(entries)
        if known_entries > count and verify_count(
            self.folder, known_entries, signature
        ):
            raise BudgetError(
                f"Cannot use the account: {self.folder / FILE} has {count} entries, "
                f"but the server has recorded {known_entries}, so this is an old copy "
                "of the account. Put the newest one back. Until then nothing is sent. "
                "If there is none: `fedaux deploy write-off --help`."
            )
        create_key(self.folder)

    def _check_total(self, entries: list[Entry], entry: Entry) -> None:
        """Raise an error unless the owner's ε allows another entry.

        An owner who allows no total allows one release and one look: each has its own
        ε, so that a second release cannot take what the look leaves.
        """
        counted = entries
        cap = self.privacy.epsilon_budget
        if not self.privacy.epsilon_total:
            counted = [earlier for earlier in entries if earlier.looks == entry.looks]
            cap = self.privacy.epsilon
            if entry.looks:
                cap = self.privacy.look_epsilon
        total = self._total([*counted, entry])
        if total <= cap:
            return
        what = "another release"
        if entry.trains:
            what = "training"
        if entry.looks:
            what = "another look"
        sent = "all that this client ever sent"
        if len(counted) < len(entries):
            sent = "all of these that this client ever sent"
        spent = self._total(counted)
        raise BudgetError(
            f"Cannot answer: {what} is refused, because with it {sent} would cost ε = "
            f"{round_up(total)} at δ = {self.privacy.delta:g}, and its owner allows "
            f"{cap:g}. So far it is {round_up(spent)}, and every entry is in "
            f"{self.folder / FILE}. Ask the owner, who can allow more by "
            "privacy.epsilon_total in the settings."
        )

    def _append(self, entry: Entry) -> None:
        path = self.folder / FILE
        if not path.exists():
            write_atomically(path, to_line(self._header), private=True)
        with path.open("ab") as file:
            file.write(to_line(entry.fields()))
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
            header.pop("person", None)
            expected.pop("person", None)
        if header and header != expected:
            raise BudgetError(
                f"Cannot use the account {self.folder / FILE}: it was kept for "
                f"{header}, and the settings now have {expected}. What one promise "
                "cost cannot be expressed in terms of another. Set them back."
            )
        return entries


def _open_attempts(entries: Sequence[Entry]) -> list[Entry]:
    """Return the attempts of one request of which nothing was stored or spent yet, the
    last one first.
    """
    return list(takewhile(lambda entry: entry.state == "entered", reversed(entries)))
