"""Python, TOML, `fedaux init`, `fedaux new` and the strategies in Flower apps have one set
of defaults: every setting is compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from fedaux.cli.privacy import plan
from fedaux.config.distillation import DISTILL_STEPS, DistillConfig
from fedaux.config.parsing import dotted
from fedaux.config.presets import PRESETS
from fedaux.config.schema import Config
from fedaux.config.starters import STARTERS, write_starter
from fedaux.flower import FedAUX, PrivateHead, add_release_handler
from fedaux.flower.new_app import write_app
from fedaux.runs.arguments import make_config
from fedaux.scoring.moments_plan import PublicFacts

# what a starter is about: where its records are, and whom it simulates
RECORDS = {
    "prototypes",  # a network for this kind of records
    "data.source",
    "data.path",
    "data.options",
    "data.clients",  # as many as a first try has
    "data.alpha",  # a split between as few
}
PUBLIC = {"aux.source", "aux.path", "aux.options"}
TRAINED = (
    "pretrain.epochs"  # 0: published weights, or a network that SimCLR cannot train
)
HEADS = "head_only"  # a first try takes seconds, and is steady
SIZE = "privacy.expected_records"  # the private head plans for so many
SCENARIOS = {
    "head": {*RECORDS, *PUBLIC, SIZE},
    "images": {*RECORDS, *PUBLIC, HEADS},
    # real sites have to declare the classes
    "table": {*RECORDS, *PUBLIC, SIZE, "data.classes"},
    "text": {*RECORDS, *PUBLIC, HEADS, TRAINED},
    "model": {*RECORDS, TRAINED},
}
NEW_APP = {*RECORDS, TRAINED}
PUBLIC_ROWS = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
HANDED_OVER = {"prototypes", "data.source", "aux.source"}  # objects of the session
OF_APPS = {
    "prototypes",  # the app's own network
    "head_init",  # with the app's own weights
    "local.epochs",  # the app trains: its steps are in proportion to its records
    "local.batch_size",
    "distill.steps",  # what 0 means, as a number that an app can read
    "federation.quorum",  # as Flower's FedAvg, which averages whatever arrives
}


def differences(config: Config) -> set[str]:
    """The keys whose values are not the defaults of the config's method."""
    defaults = flat(Config.from_dict({"method": config.method}))
    values = flat(config)
    return {key for key in values if values[key] != defaults[key]}


def flat(config: Config) -> dict[str, Any]:
    """All settings by dotted key. Options of a source are one setting."""
    table = config.to_dict()
    for section in ("data", "aux"):
        table[section]["options"] = list(table[section]["options"].items())
    table["method_options"] = list(table["method_options"].items())
    return dict(dotted(table))


def test_every_setting_is_compared() -> None:
    def keys(settings: object, prefix: str = "") -> Iterator[str]:
        for name, value in vars(settings).items():
            nested = hasattr(value, "section")
            yield from keys(value, f"{name}.") if nested else [prefix + name]

    assert set(flat(Config())) == set(keys(Config()))


@pytest.mark.parametrize("kind", STARTERS)
def test_a_starter_differs_only_in_what_it_is_about(kind: str, tmp_path: Path) -> None:
    config = Config.load(write_starter(kind, tmp_path)[0])
    assert differences(config) <= SCENARIOS[kind]


def test_a_new_app_differs_only_in_what_it_is_about(tmp_path: Path) -> None:
    files = {path.name: path for path in write_app(tmp_path / "app")}
    assert differences(Config.load(files["fedaux.toml"])) <= NEW_APP


@pytest.mark.parametrize("method", ["fedaux", "private-head", "fedavg+p"])
def test_python_has_the_defaults_of_a_file(method: str) -> None:
    assert differences(make_config(method)) == set()
    rows = np.zeros((40, 4), np.float32)
    labels = np.arange(40) % 2
    config = make_config(method, data=(rows, labels), public=rows, model=network)
    assert differences(config) == HANDED_OVER


def test_a_config_in_python_has_the_defaults_of_a_file() -> None:
    assert Config() == Config.from_dict({})


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def test_the_strategy_has_the_defaults_of_a_config() -> None:
    strategy = FedAUX(
        model=network(),
        public=PUBLIC_ROWS,
        classes=2,
        features=lambda model, x: model[:2](x),
        keep=None,
    )
    config = strategy.server.config
    assert differences(config) <= OF_APPS
    assert config.head_init == "random"
    assert config.distill_steps(1) == Config(head_init="random").distill_steps(1)


def test_the_strategy_of_a_head_has_the_defaults_of_a_config() -> None:
    strategy = PrivateHead(
        model=network(),
        head="2",
        public=PUBLIC_ROWS,
        classes=2,
        keep=None,
    )
    # rounds and head_only are of runs: the strategy is told when it starts
    assert differences(strategy.server.config) <= {"prototypes", "rounds", "head_only"}


def test_whoever_names_no_budget_has_the_same_one() -> None:
    privacy = Config().privacy
    assert inspect.signature(plan).parameters["epsilon"].default == privacy.epsilon
    assert inspect.signature(plan).parameters["delta"].default == privacy.delta
    of_handlers = inspect.signature(add_release_handler).parameters
    assert of_handlers["delta"].default == privacy.delta
    assert PublicFacts().epsilon == privacy.epsilon
    assert PublicFacts().delta == privacy.delta


def test_the_preset_states_what_the_paper_has_otherwise() -> None:
    paper = PRESETS["paper"].settings
    stated = {key: paper[key] for key in paper if key.startswith(("pretrain", "priv"))}
    assert stated == {
        "pretrain.epochs": 100,
        "pretrain.batch_size": 512,
        "pretrain.min_crop_area": 0.2,
        "privacy.epsilon": 0.1,
    }


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
