"""A client's account as its owner sees it: one row for every entry, and a statement of the total."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from fedaux.privacy.account_file import LOST, Entry, read_account
from fedaux.privacy.accounting import round_up, total_epsilon
from fedaux.privacy.units import NEIGHBOURS

TRAINING, RELEASE, WRITTEN_OFF = "private training", "release", "written off"


@dataclass(frozen=True)
class SiteAccount:
    """What `fedaux privacy report --vault` shows."""

    folder: Path
    adjacency: str
    unit: str
    delta: float
    entries: tuple[Entry, ...]

    @classmethod
    def read(cls, folder: Path, delta: float) -> SiteAccount:
        header, entries = read_account(folder)
        costly = tuple(entry for entry in entries if entry.steps > 0)
        return cls(folder, header.get("adjacency", "replace-one"), header.get("unit", "record"), delta, costly)

    @property
    def unsafe(self) -> bool:
        """Whether any noise came from a known seed, so that nothing is private."""
        return any(entry.unsafe for entry in self.entries)

    @property
    def epsilon(self) -> float:
        """∞ if the noise is known."""
        if self.unsafe:
            return math.inf
        return total_epsilon([entry.mechanism for entry in self.entries], self.delta, self.adjacency)

    def rows(self) -> list[tuple[str, ...]]:
        """(number, kind, noise multiplier, sample rate, steps) of every entry."""
        return [
            (
                str(number),
                TRAINING if entry.trains else WRITTEN_OFF if entry.request == LOST else RELEASE,
                f"{entry.noise:.4g}",
                f"{entry.rate:.3g}",
                str(entry.steps),
            )
            for number, entry in enumerate(self.entries, 1)
        ]

    def to_dict(self) -> dict[str, object]:
        """For JSON, which knows no ∞: null is an ε that nothing bounds."""
        epsilon = self.epsilon if self.epsilon < math.inf else None
        return {**asdict(self), "folder": str(self.folder), "epsilon": epsilon, "statement": self.statement()}

    def statement(self) -> str:
        if self.unsafe:
            return "NOT PRIVATE: noise was drawn from a known seed (privacy.unsafe_seed), so anybody can remove it."
        kinds = Counter(kind for _, kind, *_ in self.rows())
        lost = f", written off: {kinds[WRITTEN_OFF]}" if kinds[WRITTEN_OFF] else ""
        return (
            f"All that this client ever sent under noise (releases: {kinds[RELEASE]}, rounds of private training: "
            f"{kinds[TRAINING]}{lost}) costs at most ε = {round_up(self.epsilon)} at δ = {self.delta:g} for "
            f"{NEIGHBOURS[self.adjacency, self.unit]}, whether or not it arrived. Models that were trained without "
            "noise, and sums of features, are not in this account, and are not covered."
        )
