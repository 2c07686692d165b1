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


def test_the_strategy_and_a_run_from_its_start_distil_alike() -> None:
    """An app's own network has no computed head."""
    config = Config(head_init="random")
    steps = [config.distill_steps(round_, batches_an_epoch=7) for round_ in (1, 2, 9)]
    assert steps == [inspect.signature(FedAUX).parameters["distill_steps"].default] * 3


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
    steps = DistillConfig(**settings).steps_in_round
    assert steps(1, batches_an_epoch=7) == expected
    assert steps(3, batches_an_epoch=7) == expected
    # what the user sets stays as it is
    later = steps(3, batches_an_epoch=7, fading=True)
    assert later == (DISTILL_STEPS // 4 if not settings else expected)


def test_distillation_fades_under_a_computed_head() -> None:
    whole = Config(method="fedaux")
    steps = [whole.distill_steps(round_) for round_ in range(1, 10)]
    assert steps == [200, 100, 50, 25, 12, 6, 3, 1, 1]
    heads = Config(method="fedaux", head_only=True)
    assert heads.distill_steps(8, 7) == DISTILL_STEPS
