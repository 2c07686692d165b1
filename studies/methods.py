"""All methods on digits, each at modestly tuned rates: a check that they run and learn, not the tuned comparison.

    python -m studies.methods studies/results/methods-digits.md

Rates are chosen from small grids by the last round of one split, which is not among those reported. A method with
pre-training takes the rates of the one without.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedaux import METHODS, Config, run

BASE: dict[str, Any] = {
    "rounds": 10,
    "fraction": 0.5,
    "prototypes": ["mlp"],
    "data": {"clients": 10, "alpha": 0.1},
    "pretrain": {"epochs": 30, "batch_size": 256, "min_crop_area": 0.5, "flip": False},
    "local": {"optimizer": "sgd", "epochs": 2},
    "distill": {"epochs": 5, "lr": 1e-3},
    "privacy": {"epsilon": 1.0, "embedding_dim": 12},
}
RATES = {"local.lr": (0.03, 0.1, 0.3, 1.0)}
OWN_RATES: dict[str, dict[str, tuple[float, ...]]] = {
    "fedavgm": {"method_options.server_lr": (0.1, 0.3, 1.0)},
    "fedadam": {"method_options.server_lr": (0.03, 0.1, 0.3)},
    "fedyogi": {"method_options.server_lr": (0.03, 0.1, 0.3)},
}
TUNING_SEED, SEEDS = 100, (0, 1, 2)


def curve(method: str, rates: Mapping[str, float], seed: int, cache: Path) -> list[float]:
    overrides = [f"{key}={value}" for key, value in {**rates, "seed": seed}.items()]
    config = Config.from_dict({**BASE, "method": method}, overrides)
    with tempfile.TemporaryDirectory() as folder:
        return run(config, Path(folder), cache=cache).curve


def tuned(method: str, cache: Path) -> dict[str, float]:
    """The best of the grid, by the last round on the tuning split."""
    grid = {**RATES, **OWN_RATES.get(method, {})}
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return max(points, key=lambda point: curve(method, point, TUNING_SEED, cache)[-1])


def row(method: str, rates: Mapping[str, float], cache: Path) -> str:
    curves = np.array([curve(method, rates, seed, cache) for seed in SEEDS]) * 100
    figures = [f"{at.mean():.1f} ± {at.std(ddof=1):.1f}" for at in (curves[:, 0], curves[:, 4], curves[:, -1])]
    words = ", ".join(f"{key.rpartition('.')[2]} {value:g}" for key, value in rates.items())
    return f"| {METHODS[method].label} | {words} | {' | '.join(figures)} |"


def table(methods: Sequence[str], cache: Path) -> list[str]:
    lines = ["| method | rates | round 1 | round 5 | round 10 |", "| --- | --- | --- | --- | --- |"]
    rates: dict[str, dict[str, float]] = {}
    for method in methods:
        plain = method.removesuffix("+p")
        rates[plain] = rates.get(plain) or tuned(plain, cache)
        lines.append(row(method, rates[plain], cache))
        print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(sys.argv[1]).write_text("\n".join([*table(list(METHODS), Path(folder)), ""]), encoding="utf-8")
