"""Every configuration of the studies loads, with the settings of today."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.sweeps.grid import Sweep

STUDIES = Path(__file__).resolve().parents[3] / "studies"
CONFIGURATIONS = sorted(STUDIES.glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_a_configuration_of_the_studies_loads(path: Path) -> None:
    if "sweep" in tomllib.loads(path.read_text(encoding="utf-8")):
        assert Sweep.load(path).arms
    else:
        Config.load(path)


def test_the_heads_of_ten_thousand_clients_share_the_extractor_of_cifar10() -> None:
    large = Config.load(STUDIES / "ten_thousand.toml")
    cifar10 = Config.load(STUDIES / "cifar10.toml")
    assert large.pretrain == cifar10.pretrain
    assert large.precision == cifar10.precision
    assert large.prototypes == cifar10.prototypes
    assert large.aux == cifar10.aux
