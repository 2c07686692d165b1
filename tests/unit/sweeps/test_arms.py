"""An arm's config, and its names for folders and for readers. Whole grids of them are in test_grid.py."""

from typing import Any

import pytest

from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.sweeps.arms import describe, format_value, ignores, make_arm, make_name
from fedaux.sweeps.chosen import Chosen


def test_an_arm_is_the_base_with_what_was_chosen_for_its_method_and_its_own_settings() -> None:
    chosen = Chosen(methods={"fedavg": {"local.lr": 0.1, "local.epochs": 2}})
    arm = make_arm(Config(), {"method": "fedavg", "local.epochs": 3}, chosen)
    assert (arm.config.method, arm.config.local.lr, arm.config.local.epochs) == ("fedavg", 0.1, 3)
    assert (arm.name, arm.label) == ("fedavg-local.epochs=3", "FedAVG, local.epochs = 3")


def test_options_of_a_method_are_not_those_of_another() -> None:
    base = Config.from_dict({"method": "fedavgm", "method_options": {"beta": 0.5}})
    assert dict(make_arm(base, {"local.lr": 0.1}).config.method_options) == {"beta": 0.5}
    assert dict(make_arm(base, {"method": "fedavg"}).config.method_options) == {}


def test_an_arm_that_cannot_be_names_its_settings() -> None:
    with pytest.raises(ConfigError, match=r"cannot have an arm with local\.epochs=0: local\.epochs must be"):
        make_arm(Config(), {"local.epochs": 0})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0.1, "0.1"),
        (1e-5, "1e-05"),
        (0.12345678, "0.12345678"),  # not rounded to what another arm may have
        (7, "7"),
        (["mlp", {"name": "cnn", "width": 8}], "mlp + cnn(width=8)"),
        ({"name": "mlp"}, "mlp"),
    ],
)
def test_values_are_short_and_exact(value: Any, text: str) -> None:
    assert format_value(value) == text


def test_names_of_folders_have_no_odd_characters() -> None:
    assert make_name({"method": "fedaux", "data.path": "a b/c:d"}) == "fedaux-data.path=a_b_c_d"
    assert len(make_name({"data.path": "x" * 500})) == 120
    assert describe({}) == "as in the config"
    assert describe({"local.lr": 0.1, "local.epochs": 5}) == "local.lr = 0.1, local.epochs = 5"


def test_what_a_method_ignores() -> None:
    ignored = {
        method: {
            key
            for key in ("privacy.epsilon", "distill.lr", "teachers.weights", "pretrain.epochs", "local.mu", "local.lr")
            if ignores(Config(method=method), key)
        }
        for method in ("fedavg", "fedprox", "feddf+p", "fedaux")
    }
    every = {"privacy.epsilon", "distill.lr", "teachers.weights", "pretrain.epochs", "local.mu"}
    assert ignored == {
        "fedavg": every,
        "fedprox": every - {"local.mu"},
        "feddf+p": {"privacy.epsilon", "local.mu"},
        "fedaux": {"local.mu"},
    }
