"""Ready-made configurations and settings: the demo, and how papers and their code train
(`--preset`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedaux.config.distillation import DistillConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import (
    AuxConfig,
    DataConfig,
    LocalConfig,
    PretrainConfig,
    PrivacyConfig,
)

# Local training and the random head are the paper's: one epoch, Adam 1e-3, batches of
# 32. The paper distils for one epoch at 5e-5, which suits tens of thousands of public
# images; here there are 575.
DEMO = Config(
    rounds=5,
    head_init="random",
    prepare="selected",
    local=LocalConfig(epochs=1, optimizer="adam"),
    prototypes=(PrototypeSpec("cnn"),),
    data=DataConfig(source="digits", clients=10, alpha=0.01),
    aux=AuxConfig(fraction=0.5),
    pretrain=PretrainConfig(epochs=30, batch_size=256, min_crop_area=0.5, flip=False),
    distill=DistillConfig(epochs=5, lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, delta=1e-5, embedding_dim=12),
)


@dataclass(frozen=True)
class Preset:
    """Settings by dotted key. `source` completes "Settings: …" below a table."""

    source: str
    settings: Mapping[str, Any]
    methods: tuple[str, ...] = ()  # that it is for; empty: all


PRESETS = {
    "paper": Preset(
        "those of the FedAUX paper",
        {
            "head_init": "random",
            "prepare": "selected",
            "local.epochs": 1,
            "local.optimizer": "adam",
            "local.lr": 1e-3,
            "local.momentum": 0.0,
            "local.weight_decay": 0.0,
            "local.schedule": "constant",
            "local.batch_size": 32,
            "distill.epochs": 1,
            "distill.lr": 5e-5,
            "distill.batch_size": 128,
        },
    ),
    "feddf-paper": Preset(
        (
            "FedDF with those of its own code, early stopping on public examples "
            "instead of labels"
        ),
        {
            "local.epochs": 40,
            "local.optimizer": "sgd",
            "local.lr": 0.1,
            "local.momentum": 0.0,
            "local.weight_decay": 0.0,
            "local.batch_size": 64,
            "distill.steps": 10_000,
            "distill.patience": 1_000,
            "distill.lr": 1e-3,
            "distill.batch_size": 128,
            "distill.train_mode": True,
        },
        ("feddf", "feddf+p"),
    ),
}
