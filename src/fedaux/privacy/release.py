"""P3: from a summary with a proven sensitivity to the one release a client ever makes of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.errors import FedauxError
from fedaux.exchange import Release
from fedaux.files import write_atomically
from fedaux.privacy import gaussian

ADJACENCIES = ("replace-one", "add-remove")
GRID = 2**20  # steps per unit: summaries are integers, `values / GRID` their meaning


class BudgetError(FedauxError, RuntimeError):
    """A release that the client's own budget does not allow."""


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


def release(
    summary: Summary, client: str, scorer: str, epsilon: float, delta: float, certificate: str, unsafe_seed: int = -1
) -> Release:
    """Add the noise that makes the summary (ε, δ)-private under its adjacency.

    The noise comes from the operating system. `unsafe_seed` ≥ 0 replaces it by a reproducible draw, which anybody who
    knows the seed can subtract: the release is then marked unsafe, in every output that mentions it.
    """
    scale = gaussian.multiplier(epsilon, delta, certificate) * summary.sensitivity
    if unsafe_seed >= 0:
        rng = np.random.default_rng([unsafe_seed, *client.encode()])
        values = summary.values + np.rint(rng.normal(0.0, scale, summary.values.shape)).astype(np.int64)
    else:
        values = gaussian.add_noise(summary.values, scale)
    return Release(
        client=client,
        scorer=scorer,
        records=summary.records,
        epsilon=epsilon,
        delta=delta,
        adjacency=summary.adjacency,
        certificate=certificate,
        sensitivity=summary.sensitivity,
        scale=scale,
        step=summary.step,
        unsafe=unsafe_seed >= 0,
        arrays={"values": values},
    )


class Vault:
    """A client's memory of what it released: the same request gets the same bytes, another one needs more budget.

    Noise drawn afresh for a repeated question could be averaged away; an answer stored before it is sent cannot.
    """

    def __init__(self, folder: Path, epsilon_limit: float) -> None:
        self.folder = folder
        self.epsilon_limit = epsilon_limit

    def recall(self, request: str) -> Release | None:
        path = self._path(request)
        if not path.is_file():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        values = np.asarray(stored.pop("values"), dtype=np.int64)
        return Release(**stored, arrays={"values": values})

    def check(self, epsilon: float) -> None:
        """Refuse before any private record is read for a release that would exceed the limit (basic composition)."""
        spent = sum(json.loads(path.read_text(encoding="utf-8"))["epsilon"] for path in self._stored())
        if not epsilon > 0 or not spent + epsilon <= self.epsilon_limit * (1 + 1e-9):
            raise BudgetError(
                f"a release of ε={epsilon:g} is refused: ε={spent:g} of {self.epsilon_limit:g} is already spent. "
                "A different scorer, extractor or budget is a new release; raise the client's limit only on purpose."
            )

    def store(self, request: str, made: Release) -> None:
        """On disk, whole and flushed, before anybody can see it."""
        fields = {key: value for key, value in asdict(made).items() if key != "arrays"}
        write_atomically(self._path(request), json.dumps({**fields, "values": made.arrays["values"].tolist()}).encode())

    def _path(self, request: str) -> Path:
        return self.folder / f"release-{request}.json"

    def _stored(self) -> list[Path]:
        return sorted(self.folder.glob("release-*.json"))
