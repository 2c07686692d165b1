"""What a sweep says of its arms in plain words."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.config.prototype import PrototypeSpec
from fedaux.report.arms import ArmResult
from fedaux.sweeps.grid import Sweep
from fedaux.sweeps.results import SweepResult, latex_tables
from helpers.tiny import TINY_CONFIG


def result(ends: dict[str, list[float]]) -> SweepResult:
    """Of methods with these accuracies after the last round, one for each seed."""
    seeds = max(map(len, ends.values()))
    sweep = Sweep.of(TINY_CONFIG, {"method": list(ends)}, seeds)
    arms = [
        ArmResult(
            name.upper(),
            {"method": name},
            {},
            tuple(range(len(values))),
            (Path(),) * len(values),
            np.array(values)[:, None],
        )
        for name, values in ends.items()
    ]
    return SweepResult(sweep, Path(), tuple(arms))


def test_a_lead_beyond_chance_is_a_win() -> None:
    ends = {"fedavg": [0.5, 0.52, 0.51], "fedaux": [0.8, 0.81, 0.82]}
    verdict = result(ends).verdict
    assert verdict.startswith("FEDAUX has the highest accuracy, 81.0 %: it weights")


def test_a_lead_that_chance_explains_names_no_winner() -> None:
    """ "FedAUX has the highest accuracy" stood above p = 0.229, and above a tie."""
    ends = {"scaffold": [0.75, 0.70, 0.74], "fedaux": [0.74, 0.75, 0.76]}
    assert result(ends).verdict == (
        "No winner: 3 seeds cannot tell FEDAUX (75.0 %) from SCAFFOLD (73.0 %)."
    )
    tied = {"fedavg": [0.497] * 3, "fedprox": [0.497] * 3}
    assert result(tied).verdict.startswith("No winner: 3 seeds cannot tell")


def test_few_seeds_are_ahead_at_most() -> None:
    verdict = result({"ridge": [0.9], "fedavg": [0.5], "fedaux": [0.8]}).verdict
    assert verdict.startswith("RIDGE is ahead with 90.0 %, and 1 seed cannot name a")
    assert "FEDAUX is ahead of the methods that train with 80.0 %" in verdict


def test_a_model_without_some_classes_is_not_called_collapsed() -> None:
    """64 % with one class missing was "Collapsed"."""
    found = result({"fedavg": [0.64], "fedaux": [0.8]})
    fedavg, fedaux = found.arms
    warned = replace(fedavg, warning="the model gives up 1 of 10 classes")
    collapsed = replace(found, arms=(warned, fedaux)).collapsed
    assert collapsed.startswith("No better than always answering one class, or without")
    assert "FEDAVG. The report says" in collapsed


def test_captions_and_labels_have_names_that_a_reader_knows() -> None:
    """They had here:data-c63ca03c, here:Net-f5294eac and tab:compare-56ed31af."""
    found = result({"fedavg": [0.5], "fedaux": [0.8]})
    base = replace(
        TINY_CONFIG,
        data=replace(TINY_CONFIG.data, source="here:data-c63ca03c"),
        prototypes=(PrototypeSpec("here:Net-f5294eac"),),
    )
    titled = replace(found, sweep=replace(found.sweep, base=base, title="My methods"))
    assert "here:" not in titled.caption
    assert "your data, " in titled.caption
    assert "Net, " in titled.caption
    assert r"\label{tab:my-methods}" in latex_tables(titled)


def test_a_comparison_has_the_title_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("fedaux.sweeps.compare")
    seen: list[Sweep] = []
    monkeypatch.setattr(module, "run_sweep", lambda sweep, *_, **__: seen.append(sweep))
    monkeypatch.setattr(module, "write_results", lambda result: result)
    module.compare(TINY_CONFIG, tmp_path, methods=["fedavg"], title="Mine")
    assert seen[0].title == "Mine"
