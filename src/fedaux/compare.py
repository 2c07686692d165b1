"""Several methods, several seeds, one table and one picture. What is done already is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.config import Config
from fedaux.data.federated import open_data
from fedaux.experiment import run
from fedaux.files import write_atomically
from fedaux.methods import METHODS
from fedaux.report.pictures import draw_curves, draw_split
from fedaux.report.tables import comparison, markdown
from fedaux.server import Tell


@dataclass(frozen=True, eq=False)
class Comparison:
    """Curves of every method, (seeds, rounds), the privacy statement of FedAUX, and the pictures drawn."""

    curves: dict[str, NDArray[np.float64]]
    privacy: str
    pictures: tuple[Path, Path]

    @property
    def last(self) -> dict[str, float]:
        return {label: float(values[:, -1].mean()) for label, values in self.curves.items()}


def compare(
    base: Config,
    folder: Path,
    seeds: int,
    methods: Sequence[str] = tuple(METHODS),
    *,
    tell: Tell | None = None,
    cache: Path | None = None,
) -> Comparison:
    """Every method from the same data, split and first weights; only what its row of the table says differs."""
    curves: dict[str, NDArray[np.float64]] = {}
    privacy = ""
    for name in methods:
        results = []
        for seed in range(base.seed, base.seed + seeds):
            config = replace(base, method=name, seed=seed)
            results.append(run(config, folder / "runs" / f"{name}-seed{seed}", tell=tell, cache=cache))
        curves[METHODS[name].label] = np.array([result.curve for result in results])
        if METHODS[name].scores:
            privacy = results[0].privacy
    data, where = open_data(base), (folder / "split.png", folder / "curves.png")
    setting = f"{base.data.source}, {base.data.clients} clients, α = {base.data.alpha:g}"
    networks = ", ".join(spec.label for spec in base.prototypes)
    draw_split(data.counts(), data.classes, where[0], f"Who holds what: {setting}")
    draw_curves(curves, where[1], f"{setting}, {networks}, ε = {base.privacy.epsilon:g} for FedAUX")
    caption = f"Test accuracy in %: {setting}, {networks}, {base.rounds} rounds, {seeds} seed(s)."
    write_atomically(folder / "table.md", f"{caption}\n\n{markdown(comparison(curves))}\n{privacy}\n".encode())
    return Comparison(curves, privacy, where)
