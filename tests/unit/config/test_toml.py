"""What is written as TOML reads back as the same settings."""

import tomllib
from dataclasses import replace

import pytest

from fedaux.config.presets import DEMO
from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig
from fedaux.config.toml import to_commented_toml, to_complete_toml, toml_value

OWN_OPTIONS = Config(method="fedavgm", method_options=(("beta", 0.5),))
PRIVATE_HEAD = Config.from_dict({"method": "private-head"})


@pytest.mark.parametrize(
    "config",
    [
        OWN_OPTIONS,
        PRIVATE_HEAD,
        replace(PRIVATE_HEAD, rounds=10),
        Config(),
        DEMO,
        replace(DEMO, data=DataConfig(path='a "quoted" path', clients=3)),
    ],
)
def test_all_settings_and_those_that_differ_read_back(config: Config) -> None:
    for text in (
        to_complete_toml(config),
        to_commented_toml(config, "a head\nof two lines", {}),
    ):
        assert Config.from_dict(tomllib.loads(text)) == config


def test_complete_is_complete_and_commented_is_short() -> None:
    table = tomllib.loads(to_complete_toml(DEMO))
    assert table == DEMO.to_dict()
    assert to_commented_toml(Config(), "", {}) == ""


def test_comments_stand_above_what_they_are_about() -> None:
    text = to_commented_toml(Config(rounds=3), "one\ntwo", {"rounds": "how many"})
    assert text.startswith("# one\n# two\n")
    assert "# how many\nrounds = 3\n" in text
    assert "method" not in text  # neither noted nor changed


@pytest.mark.parametrize(
    "value",
    [
        'a"b\\c\n\t\x7fü😀',
        1,
        1e-5,
        True,
        [1, 2],
        ["a"],
        {"a b": {"c": [False]}, "d-e_1": 2.5},
        "",
        [],
    ],
)
def test_values_survive_toml(value: object) -> None:
    assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value
