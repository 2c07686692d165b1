"""Nine methods on scikit-learn's digits, split so that each client sees about one class: a result in a minute."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.config import AuxConfig, Config, DataConfig, DistillConfig, PretrainConfig, PrivacyConfig
from fedaux.data.federated import open_data
from fedaux.experiment import run
from fedaux.files import write_atomically
from fedaux.methods import METHODS
from fedaux.prototypes import PrototypeSpec
from fedaux.report.pictures import draw_curves, draw_split
from fedaux.report.tables import comparison, markdown
from fedaux.server import Tell

# Local training is the paper's (one epoch, Adam 1e-3, batches of 32). Its distillation, one epoch at 5e-5, is meant for
# tens of thousands of public images; here there are 575.
DIGITS = Config(
    rounds=5,
    prototypes=(PrototypeSpec("cnn"),),
    data=DataConfig(source="digits", clients=10, alpha=0.01),
    aux=AuxConfig(share=0.5),
    pretrain=PretrainConfig(epochs=30, batch=256, crop=0.5, flip=False),
    distill=DistillConfig(epochs=5, lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, delta=1e-5, dims=12),
)


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
    base: Config, folder: Path, seeds: int, methods: tuple[str, ...] = tuple(METHODS), tell: Tell | None = None
) -> Comparison:
    """Every method from the same data, split and first weights; only what its row of the table says differs."""
    curves: dict[str, NDArray[np.float64]] = {}
    privacy = ""
    for name in methods:
        results = []
        for seed in range(base.seed, base.seed + seeds):
            config = replace(base, method=name, seed=seed)
            results.append(run(config, folder / "runs" / f"{name}-seed{seed}", tell=tell, cache=folder / "cache"))
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
