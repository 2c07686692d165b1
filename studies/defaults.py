"""How far the defaults are from tuned settings: FedAUX on five data sets, five rounds,
ε = 1.

    python -m studies.defaults studies/results/defaults.json      # goes on where it was stopped

Each data set has the default settings, the best of `GRID` on validation records of a
split that is not tested, the private head and ridge regression. Extractors and features
are cached in FEDAUX_CACHE.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedaux import Config, run
from fedaux.config.parsing import set_key
from studies.sources import ROOT

SHORT = {
    "pretrain.batch_size": 256,
    "pretrain.min_crop_area": 0.5,
    "pretrain.flip": False,
}
SETS: dict[str, dict[str, Any]] = {
    "digits, whole cnn": {
        "prototypes": ["cnn"],
        "data.alpha": 0.01,
        "pretrain.epochs": 30,
        **SHORT,
    },
    "Fashion-MNIST, heads": {
        "prototypes": ["cnn"],
        "head_only": True,
        "data.source": "studies.sources:fashion_mnist",
        "data.alpha": 0.1,
        "aux.source": "studies.sources:mnist",
        "aux.limit": 3000,
        "pretrain.epochs": 12,
        **SHORT,
    },
    "CIFAR-10, heads": {
        "prototypes": [{"name": "resnet8", "width": 32}],
        "head_only": True,
        "data.source": "studies.sources:cifar10",
        "data.options": {"limit": 10_000, "test_limit": 2_000},
        "data.clients": 20,
        "data.alpha": 0.01,
        "aux.source": "studies.sources:tinyimagenet",
        "pretrain.epochs": 60,
        "pretrain.batch_size": 256,
        "pretrain.min_crop_area": 0.2,
    },
    "Pneumonia, heads": {
        "prototypes": ["cnn"],
        "head_only": True,
        "data.source": "npz",
        "data.path": str(ROOT / "pneumoniamnist_train.npz"),
        "data.clients": 3,
        "data.alpha": 0.1,
        "aux.fraction": 0.4,
        "pretrain.epochs": 20,
        **SHORT,
    },
    "AG News, heads": {
        "prototypes": ["encoder"],
        "head_only": True,
        "data.source": "studies.sources:ag_news",
        "data.options": {"limit": 4000},
        "data.alpha": 0.01,
        "aux.source": "studies.sources:books",
        "aux.limit": 2000,
        "pretrain.epochs": 0,
    },
}
GRID: tuple[dict[str, Any], ...] = (
    {},
    {"local.epochs": 20},
    {"local.lr": 0.01, "local.epochs": 20},
    {"distill.lr": 1e-3, "distill.steps": 200},
    {"local.epochs": 20, "distill.lr": 1e-3, "distill.steps": 200},
    {
        "head_init": "random",
        "local.optimizer": "sgd",
        "local.lr": 0.1,
        "local.epochs": 20,
        "distill.lr": 1e-3,
        "distill.steps": 200,
    },
    {
        "head_init": "random",
        "local.optimizer": "sgd",
        "local.lr": 0.01,
        "local.epochs": 20,
        "distill.lr": 1e-3,
        "distill.steps": 200,
    },
    {"privacy.embedding_dim": 12, "local.epochs": 20},
)
SEEDS = (0, 1, 2)
TUNING_SEED = 1000
BASE: dict[str, Any] = {
    "rounds": 5,
    "head_only": False,
    "privacy.epsilon": 1.0,
    "privacy.scorer": "class-embedding",
}  # for all methods


def accuracy(settings: Mapping[str, Any], seed: int) -> float:
    """Test accuracy after the last round."""
    table: dict[str, Any] = {}
    for key, value in {**BASE, **settings, "seed": seed}.items():
        set_key(table, key, value, "the study")
    with tempfile.TemporaryDirectory() as folder:
        return run(Config.from_dict(table), Path(folder) / "run").accuracy


class Cells:
    """Results by name in a file, so that a study goes on where it was stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, float] = (
            json.loads(path.read_text()) if path.exists() else {}
        )

    def of(self, name: str, settings: Mapping[str, Any], seed: int) -> float:
        key = f"{name}|{json.dumps(settings, sort_keys=True)}|{seed}"
        if key not in self.found:
            self.found[key] = round(accuracy({**SETS[name], **settings}, seed), 4)
            self.path.write_text(json.dumps(self.found, indent=1) + "\n")
        return self.found[key]


def tuned(cells: Cells, name: str) -> dict[str, Any]:
    """The best of the grid on validation records."""
    trials = {
        json.dumps(one): cells.of(
            name, {**one, "data.validation_fraction": 0.2}, TUNING_SEED
        )
        for one in GRID
    }
    best: dict[str, Any] = json.loads(max(trials, key=trials.__getitem__))
    return best


def row(cells: Cells, name: str) -> str:
    chosen = tuned(cells, name)
    arms = {
        "default": {},
        "tuned": chosen,
        "head": {"method": "private-head"},
        "ridge": {"method": "ridge+p"},
    }
    figures = {
        arm: 100 * np.array([cells.of(name, settings, seed) for seed in SEEDS])
        for arm, settings in arms.items()
    }
    texts = [
        f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" for values in figures.values()
    ]
    gap = figures["default"].mean() - figures["tuned"].mean()
    words = (
        ", ".join(f"{key} = {value}" for key, value in chosen.items()) or "the defaults"
    )
    return f"| {name} | {' | '.join(texts)} | {gap:+.1f} | {words} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="default against tuned settings")
    parser.add_argument("results", type=Path)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    torch.set_num_threads(1)
    arguments = parser.parse_args()
    cells = Cells(arguments.results)
    print(
        "| data | default | tuned | private head | ridge | default − tuned | tuned "
        "settings |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.sets:
        print(row(cells, name), flush=True)


if __name__ == "__main__":
    main()
