"""The promise of the front page, measured: methods at their best, five seeds, a true ε
of 1.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedaux.config.methods import METHODS
from fedaux.config.presets import DEMO
from fedaux.config.prototype import PrototypeSpec
from fedaux.sweeps.compare import compare
from fedaux.sweeps.method_settings import MethodSettings
from helpers.commands import fedaux


@pytest.mark.slow
def test_fedaux_needs_the_fewest_rounds_of_what_is_trained(tmp_path: Path) -> None:
    """Every method at its best of eight settings: after one round by 25 points, after
    five not below.
    """
    torch.set_num_threads(1)
    assert DEMO.privacy.epsilon <= 1
    assert DEMO.fraction == 1.0
    assert DEMO.privacy.unsafe_seed < 0
    methods = ("fedavg+p", "scaffold+p", "feddf+p", "fedaux")
    found = compare(
        DEMO,
        tmp_path,
        seeds=5,
        methods=methods,
        cache=tmp_path,
        chosen=MethodSettings.of_the_demo(),
    )
    curves = {label: curve.mean(axis=0) for label, curve in found.curves.items()}
    print({label: curve.round(3).tolist() for label, curve in curves.items()})
    ours = curves.pop("FedAUX")
    for curve in curves.values():
        assert ours[0] - curve[0] >= 0.25
        assert ours[-1] >= curve[-1]
    assert "(1, 1e-05)-differentially private" in found.privacy


@pytest.mark.slow
def test_without_scores_the_lead_is_gone(tmp_path: Path) -> None:
    """The lead comes from the certainty scores: at ε = 0.001 they are noise, and FedAUX
    falls back to FedDF+P.
    """
    torch.set_num_threads(1)
    base = replace(DEMO, privacy=replace(DEMO.privacy, epsilon=0.001))
    found = compare(
        base, tmp_path, seeds=2, methods=("feddf+p", "fedaux"), cache=tmp_path
    )
    assert abs(found.accuracy["FedAUX"] - found.accuracy["FedDF+P"]) < 0.12


def check_output(text: str, folder: Path, methods: Iterable[str]) -> None:
    """A table with these methods, a privacy statement, and two pictures."""
    for name in methods:
        assert re.search(rf"{re.escape(METHODS[name].label)} +│ +\d", text), name
    paragraph = " ".join(text.split())
    assert "ε = 1, δ = 1e-05, 10 clients" in paragraph
    assert "models are not covered" in paragraph
    for name in ("split.svg", "curves.svg"):
        assert (folder / "fedaux-demo" / name).read_text().count("<text") > 10


def table(text: str) -> str:
    return text[text.index("Test accuracy") :]


def test_two_methods_make_a_table_a_statement_and_two_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo with less of everything."""
    monkeypatch.chdir(tmp_path)
    pretrain = replace(DEMO.pretrain, epochs=1)
    quick = replace(
        DEMO,
        prototypes=(PrototypeSpec("mlp"),),
        aux=replace(DEMO.aux, fraction=0.9),  # few private records
        pretrain=pretrain,
        distill=replace(DEMO.distill, epochs=1),
    )
    monkeypatch.setattr("fedaux.config.presets.DEMO", quick)
    settings = MethodSettings.of_the_demo()
    two = {name: settings.methods[name] for name in ("fedavg+p", "fedaux")}
    monkeypatch.setattr(
        MethodSettings, "of_the_demo", lambda: replace(settings, methods=two)
    )
    assert fedaux(monkeypatch, "demo", "--rounds", 2, "--jobs", 1) == 0
    first = capsys.readouterr().out
    check_output(first, tmp_path, two)
    assert fedaux(monkeypatch, "demo", "--rounds", 2, "--jobs", 1) == 0
    # nothing is run or drawn twice
    assert table(capsys.readouterr().out) == table(first)


@pytest.mark.slow
def test_the_whole_command_takes_three_minutes_of_a_processor_at_most(
    tmp_path: Path,
) -> None:
    before = os.times()
    program = [sys.executable, "-c", "from fedaux.cli import main; main()", "demo"]
    first = subprocess.run(
        program, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    # processor seconds: 50 to 110, whatever else runs beside it
    assert sum(os.times()[2:4]) - sum(before[2:4]) < 180
    check_output(first, tmp_path, MethodSettings.of_the_demo().methods)
    again = subprocess.run(
        program, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert table(again) == table(first)
