"""A client's memory of what it has spent: kept on its own disk, written before any record is read."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from fedaux.exchange import Release
from fedaux.files import write_atomically
from fedaux.privacy.accounting import BudgetError as BudgetError


@dataclass
class Spent:
    """requests: every release that was ever begun. trained: how often private training was begun, and its last σ."""

    requests: list[str] = field(default_factory=list)
    trained: int = 0
    noise: float = 0.0


class Vault:
    """The same request gets the same bytes; a new one costs, and beyond what the client allows it is refused.

    Noise drawn afresh for a repeated question could be averaged away; an answer stored before it is sent cannot. What
    is to be spent is written down before any record is read, so that an attempt which fails half-way counts as well.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def once(self, request: str, make: Callable[[], Release], allowed: int = 1) -> Release:
        """The stored answer to this request, or a new one while fewer than `allowed` others have been asked for."""
        with self._locked() as spent:
            if request not in spent.requests:
                if len(spent.requests) >= allowed:
                    raise BudgetError(
                        "another release is refused: this client's budget is spent on what was asked for differently. "
                        f"A new extractor, scorer or public map is a new release; {self.folder} remembers the old, and "
                        f"its own setting privacy.releases = {allowed} says how many there may be."
                    )
                spent.requests.append(request)
                self._write(spent)
            path = self.folder / f"release-{spent.requests.index(request)}.json"
            if path.exists():
                return _recall(path)
            made = make()
            facts = {key: value for key, value in vars(made).items() if key != "arrays"}
            stored = json.dumps({**facts, "values": made.arrays["values"].tolist()})
            write_atomically(path, stored.encode(), private=True)
            return made

    @property
    def noise(self) -> float:
        """σ of the last private training, 0 before the first: found again in a process that starts anew each round."""
        with self._locked() as spent:
            return spent.noise

    def train_once(self, allowed: int, noise: float = 0.0) -> None:
        """Count one private training; its noise was chosen for `allowed` of them."""
        with self._locked() as spent:
            if spent.trained >= allowed:
                raise BudgetError(
                    f"training is refused: this client's budget was for {allowed} rounds, and they are used up. "
                    "Its own setting privacy.train_rounds says how many there may be; more of them need more noise."
                )
            spent.trained, spent.noise = spent.trained + 1, noise
            self._write(spent)

    @contextmanager
    def _locked(self) -> Iterator[Spent]:
        """What is spent so far, while no other process can spend."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.folder / "spent.json"
            yield Spent(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Spent()

    def _write(self, spent: Spent) -> None:
        write_atomically(self.folder / "spent.json", json.dumps(asdict(spent)).encode(), private=True)


def _recall(path: Path) -> Release:
    stored = json.loads(path.read_text(encoding="utf-8"))
    values = np.asarray(stored.pop("values"), dtype=np.int64)
    return Release(**stored, arrays={"values": values})
