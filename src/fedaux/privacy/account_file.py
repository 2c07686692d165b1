"""The file of a privacy account: one line for each release and each round of private
training, and for what has become of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedaux.privacy.accounting import BudgetError, Mechanism, total_epsilon

FILE = "account.jsonl"
# the request of an entry that stands for one that is missing
# (`privacy.account.BudgetStore.write_off`)
LOST = "lost"
TRAINING = "training "  # begins the request of a round of private training
LOOK_REQUEST = "look "  # is in the request of a look
SUM_REQUEST = "secure sum "  # is in the request of a site's part in a secure sum


@dataclass(frozen=True)
class Entry:
    """One release or one round of private training.

    An entry without steps costs nothing: it says what has become of the one above it
    (`state`).

    Attributes:
        request: A hash of what was asked for.
        mechanism: What it costs.
        unsafe: Whether the noise came from a known seed.
        answer: The hash of what may be sent.
    """

    request: str
    mechanism: Mechanism
    unsafe: bool
    answer: str = ""

    @classmethod
    def of(
        cls,
        request: str,
        noise: float,
        rate: float,
        steps: int,
        size: int,
        grid: float,
        unsafe: bool,
        answer: str = "",
    ) -> Entry:
        """Make an entry from the fields of its line."""
        mechanism = Mechanism(noise, rate, steps, size, grid)
        return cls(request, mechanism, unsafe, answer)

    def fields(self) -> dict[str, object]:
        """Return the fields of a line, in their order."""
        return {
            "request": self.request,
            "noise": self.mechanism.noise_multiplier,
            "rate": self.mechanism.sample_rate,
            "steps": self.mechanism.steps,
            "size": self.mechanism.size,
            "grid": self.mechanism.grid,
            "unsafe": self.unsafe,
            "answer": self.answer,
        }

    @property
    def state(self) -> Literal["entered", "stored", "spent"]:
        """What this line says: an answer is entered and costs, or the one entered above
        is stored and may be sent, or it is spent, because what was drawn is lost.
        """
        if self.mechanism.steps > 0:
            return "entered"
        if self.answer:
            return "stored"
        return "spent"

    def stored(self, content: bytes) -> Entry:
        """Return the line that vouches for the stored answer of this entry."""
        return replace(self.spent(), answer=hash_of(content))

    def spent(self) -> Entry:
        """Return the line that says that this entry has no answer and never will."""
        return replace(self, mechanism=replace(self.mechanism, steps=0))

    @property
    def trains(self) -> bool:
        return self.request.startswith(TRAINING)

    @property
    def looks(self) -> bool:
        return LOOK_REQUEST in self.request

    @property
    def kind(self) -> str:
        """The kind of entry, in the words of a report."""
        if self.trains:
            return "private training"
        if self.request == LOST:
            return "written off"
        if self.looks:
            return "look"
        return "release"


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
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    if repair and len(complete) < len(content):
        os.truncate(path, len(complete))
    try:
        header, *lines = [json.loads(line) for line in complete.splitlines()] or [{}]
        return dict(header), [Entry.of(**line) for line in lines]
    except (ValueError, TypeError) as error:
        raise BudgetError(
            f"Cannot use the account: {path} is damaged, and without it the client "
            "does not know what it has sent, and sends nothing. Restore the newest "
            "copy."
        ) from error


def count_costly(entries: Sequence[Entry]) -> int:
    """Count the entries that cost something."""
    return sum(entry.state == "entered" for entry in entries)


def account_epsilon(entries: Sequence[Entry], delta: float, adjacency: str) -> float:
    """Return ε of all entries composed, or ∞ if any noise came from a known seed."""
    if any(entry.unsafe for entry in entries):
        return math.inf
    return total_epsilon([entry.mechanism for entry in entries], delta, adjacency)


def to_line(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def hash_of(answer: bytes) -> str:
    return hashlib.sha256(answer).hexdigest()
