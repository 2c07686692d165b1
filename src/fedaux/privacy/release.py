"""P3: from a summary with a proven sensitivity to the one release a client ever makes of it."""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.config import PrivacyConfig
from fedaux.errors import FedauxError
from fedaux.exchange import Release
from fedaux.files import write_atomically
from fedaux.privacy import gaussian

REACH = {"replace-one": 2, "add-remove": 1}  # how many records a neighbour differs in, counted as vectors of norm 1
GRID = 2**20  # steps per unit: summaries are integers, `values / GRID` their meaning


class BudgetError(FedauxError, RuntimeError):
    """Something that the client's own settings do not allow."""


@dataclass(frozen=True, eq=False)
class Summary:
    """Integers that describe one client's data, and how far one record can move them.

    `values * step` is what they mean; neighbouring data sets differ by at most `sensitivity` steps in ℓ₂.
    """

    values: NDArray[np.int64]
    step: float
    sensitivity: float
    adjacency: str
    records: int

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.dtype != np.int64 or not 1 <= self.sensitivity < math.inf:
            raise ValueError("a summary is one vector of 64-bit integers with a sensitivity of at least one step")


def release(summary: Summary, client: str, privacy: PrivacyConfig) -> Release:
    """Add the noise that makes the summary (ε, δ)-private under its adjacency.

    The noise comes from the operating system. `unsafe_seed` ≥ 0 replaces it by a reproducible draw, which anybody who
    knows the seed can subtract: the release is then marked unsafe, in every output that mentions it.
    """
    scale = gaussian.multiplier(privacy.epsilon, privacy.delta, privacy.certificate) * summary.sensitivity
    if privacy.unsafe_seed >= 0:
        rng = np.random.default_rng([privacy.unsafe_seed, *client.encode()])
        values = summary.values + np.rint(rng.normal(0.0, scale, summary.values.shape)).astype(np.int64)
    else:
        values = gaussian.add_noise(summary.values, scale)
    return Release(
        client=client,
        scorer=privacy.scorer,
        records=summary.records,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        adjacency=summary.adjacency,
        certificate=privacy.certificate,
        sensitivity=summary.sensitivity,
        scale=scale,
        step=summary.step,
        unsafe=privacy.unsafe_seed >= 0,
        arrays={"values": values},
    )


class Vault:
    """A client's memory of its one release: the same request gets the same bytes, any other is refused.

    Noise drawn afresh for a repeated question could be averaged away; an answer stored before it is sent cannot. The
    request is written down before any record is read, so that an attempt which fails half-way counts as well.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def once(self, request: str, make: Callable[[], Release]) -> Release:
        """The stored answer to this request, or a new one if this vault has never been asked anything else."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two processes must not both find the vault empty
            asked = self.folder / "request.txt"
            if asked.exists() and asked.read_text(encoding="utf-8") != request:
                raise BudgetError(
                    "another release is refused: this client's budget is spent on one that was asked for differently. "
                    f"A new extractor, scorer or public map is a new release; {self.folder} remembers the first."
                )
            if (self.folder / "release.json").exists():
                return self._recall()
            write_atomically(asked, request.encode(), private=True)
            made = make()
            facts = {key: value for key, value in vars(made).items() if key != "arrays"}
            stored = json.dumps({**facts, "values": made.arrays["values"].tolist()})
            write_atomically(self.folder / "release.json", stored.encode(), private=True)
            return made

    def _recall(self) -> Release:
        stored = json.loads((self.folder / "release.json").read_text(encoding="utf-8"))
        values = np.asarray(stored.pop("values"), dtype=np.int64)
        return Release(**stored, arrays={"values": values})
