"""Python, TOML, `fedaux init` and the strategy in Flower apps train with one set of
defaults.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from fedaux.config.distillation import DISTILL_STEPS, DistillConfig
from fedaux.config.schema import Config
from fedaux.config.sections import FederationConfig, LocalConfig
from fedaux.config.starters import STARTERS, write_starter
from fedaux.flower import FedAUX


@pytest.mark.parametrize("kind", STARTERS)
def test_a_starter_trains_and_distils_as_python_does(kind: str, tmp_path: Path) -> None:
    config = Config.load(write_starter(kind, tmp_path)[0])
    assert config.local == LocalConfig()
    assert config.distill == DistillConfig()
    assert config.head_features == Config().head_features
    assert config.teachers == Config().teachers


def test_the_strategy_has_the_defaults_of_a_config() -> None:
    config = Config()
    expected = {
        "distill_lr": config.distill.lr,
        "distill_batch_size": config.distill.batch_size,
        "distill_steps": DISTILL_STEPS,
        "teacher_weights": config.teachers.weights,
        "max_share": config.teachers.max_share,
        "examples": config.teachers.examples,
        "embedding_dim": config.privacy.embedding_dim,
        "ridge": config.privacy.ridge,
        "quorum": 0.0,
        "max_records": FederationConfig().max_records,
    }
    parameters = inspect.signature(FedAUX).parameters
    defaults = {name: parameters[name].default for name in expected}
    assert defaults == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, DISTILL_STEPS),
        ({"epochs": 3}, 3 * 7),
        ({"steps": 12}, 12),
        ({"epochs": 3, "steps": 12}, 12),
    ],
)
def test_steps_of_a_round(settings: dict[str, int], expected: int) -> None:
    assert DistillConfig(**settings).steps_a_round(batches_an_epoch=7) == expected
