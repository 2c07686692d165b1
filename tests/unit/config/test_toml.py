"""What is written as TOML reads back as the same settings."""

import tomllib
from dataclasses import replace

import pytest

from fedaux.config.presets import DEMO
from fedaux.config.schema import Config, DataConfig
from fedaux.config.toml import to_commented_toml, to_complete_toml

OWN_OPTIONS = Config(method="fedavgm", method_options=(("beta", 0.5),))


@pytest.mark.parametrize(
    "config", [OWN_OPTIONS, Config(), DEMO, replace(DEMO, data=DataConfig(path='a "quoted" path', clients=3))]
)
def test_all_settings_and_those_that_differ_read_back(config: Config) -> None:
    for text in (to_complete_toml(config), to_commented_toml(config, "a head\nof two lines", {})):
        assert Config.from_dict(tomllib.loads(text)) == config


def test_complete_is_complete_and_commented_is_short() -> None:
    table = tomllib.loads(to_complete_toml(DEMO))
    assert table == DEMO.to_dict()
    assert to_commented_toml(Config(), "", {}) == ""
