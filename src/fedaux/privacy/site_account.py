"""A client's privacy account as its owner sees it: a row for each entry, and a
statement.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fedaux.privacy.account_file import (
    SUM_REQUEST,
    Entry,
    account_epsilon,
    read_account,
)
from fedaux.privacy.accounting import round_up
from fedaux.privacy.units import NEIGHBOURS


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
        """The total ε, or ∞ if any noise came from a known seed."""
        return account_epsilon(self.entries, self.delta, self.adjacency)

    def epsilon_of_looks(self) -> float:
        """What the looks cost alone."""
        return self._epsilon_of([entry for entry in self.entries if entry.looks])

    def epsilon_of_learning(self) -> float:
        """What all other entries cost alone. With the looks, they cost `epsilon`, which
        is less than the sum of both.
        """
        return self._epsilon_of([entry for entry in self.entries if not entry.looks])

    def _epsilon_of(self, entries: list[Entry]) -> float:
        return account_epsilon(entries, self.delta, self.adjacency)

    def rows(self) -> list[tuple[str, ...]]:
        """Return (number, kind, noise multiplier, sample rate, steps) of every
        entry.
        """
        rows: list[tuple[str, ...]] = []
        for number, entry in enumerate(self.entries, 1):
            mechanism = entry.mechanism
            noise = f"{mechanism.noise_multiplier:.4g}"
            rate = f"{mechanism.sample_rate:.3g}"
            rows.append((str(number), entry.kind, noise, rate, str(mechanism.steps)))
        return rows

    def to_dict(self) -> dict[str, object]:
        """Return the account for JSON, which has no ∞: an unbounded ε is null."""
        return {
            "folder": str(self.folder),
            "adjacency": self.adjacency,
            "unit": self.unit,
            "delta": self.delta,
            "entries": [entry.fields() for entry in self.entries],
            "epsilon": _or_null(self.epsilon),
            "epsilon_of_learning": _or_null(self.epsilon_of_learning()),
            "epsilon_of_looks": _or_null(self.epsilon_of_looks()),
            "statement": self.statement(),
        }

    def statement(self) -> str:
        if any(entry.unsafe for entry in self.entries):
            return (
                "NOT PRIVATE: noise was drawn from a known seed "
                "(privacy.unsafe_seed), so anyone can remove it."
            )
        kinds = Counter(entry.kind for entry in self.entries)
        others = ""
        if kinds["look"]:
            others += f", looks: {kinds['look']}"
        if kinds["written off"]:
            others += f", written off: {kinds['written off']}"
        summed = sum(SUM_REQUEST in entry.request for entry in self.entries)
        sums = ""
        if summed:
            sums = (
                f" Of these, {summed} went into secure sums: each costs this against "
                "the server together with as many other sites as federation.colluders "
                "allowed."
            )
        apart = ""
        if kinds["look"]:
            apart = (
                f" Alone, looks cost ε = {round_up(self.epsilon_of_looks())}, and "
                f"learning ε = {round_up(self.epsilon_of_learning())}."
            )
        return (
            "All that this client ever sent under noise (releases: "
            f"{kinds['release']}, rounds of private training: "
            f"{kinds['private training']}{others}) costs at most ε = "
            f"{round_up(self.epsilon)} at δ = {self.delta:g} for "
            f"{NEIGHBOURS[self.adjacency, self.unit]}, whether or not it arrived."
            f"{apart} Models that were trained without noise, and sums of features, are not in "
            f"this account, and are not covered.{sums}"
        )


def _or_null(epsilon: float) -> float | None:
    return epsilon if epsilon < math.inf else None
