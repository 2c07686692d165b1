"""The file of a client's privacy account, `account.jsonl`.

A line with the adjacency and the unit of the promise, then one line for each release and each round of private
training. Lines are only ever added.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedaux.privacy.accounting import BudgetError, Mechanism

FILE = "account.jsonl"
LOST = "lost"  # the request of an entry that stands for one that is missing (`write_off`)
TRAINING = "training "  # begins the request of a round of private training


@dataclass(frozen=True)
class Entry:
    """One release or one round of private training; `request` is a hash of what was asked for.

    The fields are those of a `Mechanism` under the names that the file uses. An entry without steps costs nothing: it
    closes the one above it, whose answer is stored and may be sent, or was drawn and lost.
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

    @property
    def trains(self) -> bool:
        """Older accounts have no request for training."""
        return not self.request or self.request.startswith(TRAINING)


def read_account(folder: Path, repair: bool = False) -> tuple[dict[str, str], list[Entry]]:
    """(header, entries); both empty where there is no account yet.

    An incomplete last line was being written when the machine stopped, so before any record was read for it: it is
    ignored, and with `repair` removed from the file.
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
            f"{path} is damaged: without it the client does not know what it has sent, and sends nothing. Restore the "
            "newest copy."
        ) from error


def count_costly(entries: Sequence[Entry]) -> int:
    """How many entries cost something."""
    return sum(entry.steps > 0 for entry in entries)


def to_line(fields: Mapping[str, object]) -> bytes:
    """The header, or the fields of an entry, as the file has them."""
    return json.dumps(fields).encode() + b"\n"
