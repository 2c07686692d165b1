"""Ready-made settings: the demo's, and how the paper trains (`--preset`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
# 32.
DEMO = Config(
    rounds=5,
    head_init="random",
    prepare="selected",
    local=LocalConfig(epochs=1, optimizer="adam"),
    prototypes=(PrototypeSpec("cnn"),),
    data=DataConfig(source="digits", clients=10, alpha=0.01),
    aux=AuxConfig(fraction=0.5),
    pretrain=PretrainConfig(epochs=30, batch_size=256, min_crop_area=0.5, flip=False),
    privacy=PrivacyConfig(epsilon=1.0, delta=1e-5, embedding_dim=12),
)


@dataclass(frozen=True)
class Preset:
    """Settings by dotted key. `source` completes "Settings: …" below a table."""

    source: str
    settings: Mapping[str, Any]


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
            "local.max_grad_norm": 0.0,
            "local.weight_decay": 0.0,
            "local.schedule": "constant",
            "local.batch_size": 32,
            "distill.epochs": 1,
            "distill.steps": 0,
            "distill.lr": 5e-5,
            "distill.batch_size": 128,
            "pretrain.epochs": 100,
            "pretrain.batch_size": 512,
            "pretrain.min_crop_area": 0.2,
            "privacy.epsilon": 0.1,
        },
    ),
}
