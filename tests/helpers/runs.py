"""A tiny finished run, its export, and the two commands as the console script runs them; shared by three files."""

import sys
from pathlib import Path

import pytest

from fedaux import Config, run
from fedaux.algorithms.results import Result
from fedaux.cli import app
from fedaux.cli.common import run_app
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import AuxConfig, DataConfig, PretrainConfig

MLP = PrototypeSpec.of("mlp", features=8, hidden=8, norm="batch")  # with buffers and counters
CNN = PrototypeSpec.of("cnn", width=4, features=8)
TINY = Config(
    rounds=2,
    prototypes=(MLP,),
    data=DataConfig(clients=3, alpha=1.0),
    aux=AuxConfig(limit=100),
    pretrain=PretrainConfig(epochs=0),
)


def tiny_run(folder: Path, config: Config = TINY) -> Result:
    return run(config, folder / "run", cache=folder / "cache")


def fedaux(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """The exit code of `fedaux WORDS`, in this process."""
    monkeypatch.setattr(sys, "argv", ["fedaux", *map(str, words)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        return int(run_app(app))
    except SystemExit as stop:
        return int(stop.code or 0)


def paragraph(text: str) -> str:
    return " ".join(text.split())
