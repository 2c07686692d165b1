"""Runs that differ in their seed alone are one arm."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.report.arms import ArmResult, find_runs, group
from fedaux.report.comparison_page import write_report
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState, StateError
from fedaux.server.run_writer import RunWriter
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    for method in ("fedavg", "feddf"):
        for seed in (0, 1):
            finished_run(folder / "runs" / f"{method}-{seed}", replace(TINY_CONFIG, method=method, seed=seed))
    return folder


def test_runs_that_differ_in_their_seed_are_one_arm(several: Path) -> None:
    arms = group(find_runs([several]))
    assert [(arm.label, arm.curves.shape) for arm in arms] == [("FedAVG", (2, 2)), ("FedDF", (2, 2))]
    assert arms[0].curves[1].tolist() == FinishedRun(RunState.load(several / "runs" / "fedavg-1"), several).curve


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="holds no run"):
        find_runs([tmp_path])


def test_arms_are_named_by_what_makes_them_differ(tmp_path: Path) -> None:
    for alpha in (0.1, 1.0):
        data = replace(TINY_CONFIG.data, alpha=alpha)
        finished_run(tmp_path / str(alpha), replace(TINY_CONFIG, method="fedavg", data=data))
    assert [arm.label for arm in group(find_runs([tmp_path]))] == [
        "FedAVG, data.alpha = 0.1",
        "FedAVG, data.alpha = 1.0",
    ]


def test_runs_of_different_lengths_are_arms_of_their_own(tmp_path: Path) -> None:
    """They were cut to the shortest without a word."""
    for rounds in (1, 3):
        finished_run(tmp_path / str(rounds), replace(TINY_CONFIG, method="fedavg", rounds=rounds))
    arms = group(find_runs([tmp_path]))
    assert [(arm.label, arm.curves.shape) for arm in arms] == [
        ("FedAVG, rounds = 1", (1, 1)),
        ("FedAVG, rounds = 3", (1, 3)),
    ]


def test_an_arm_that_is_not_finished_is_cut_and_says_so(tmp_path: Path) -> None:
    for seed in (0, 1):
        finished_run(tmp_path / str(seed), replace(TINY_CONFIG, method="fedavg", rounds=3, seed=seed))
    state = RunState.load(tmp_path / "1")
    RunWriter(tmp_path / "1").save(replace(state, round=1, history=(replace(state.history[-1], round=1),)))
    (arm,) = group(find_runs([tmp_path]))
    assert arm.curves.shape == (2, 1)
    assert arm.note == "1 of 2 runs not finished, cut to 1 rounds: seed 1 (1)"
    text = write_report(tmp_path).read_text()
    assert "FedAVG: 1 of 2 runs not finished" in text
    assert "FedAVG: 2 of 2 runs: the model does not beat" in text  # networks that have learned nothing


def test_a_folder_that_is_named_twice_counts_once(several: Path) -> None:
    assert find_runs([several, several / "runs" / "feddf-0"]) == find_runs([several])


def test_an_arm_is_plain_json_with_folders_that_can_move() -> None:
    base = Path("/somewhere")
    arm = ArmResult(
        "FedAUX, α = 0.1",
        {"method": "fedaux", "data.alpha": 0.1},
        {"method": "FedAUX", "data.alpha": "α = 0.1"},
        (0, 1),
        (base / "runs" / "a", base / "runs" / "b"),
        np.array([[0.5, 0.6], [0.4, 0.7]]),
        "a statement",
    )
    assert json.loads(json.dumps(arm.to_dict(base))) == {
        "label": "FedAUX, α = 0.1",
        "settings": {"method": "fedaux", "data.alpha": 0.1},
        "seeds": [0, 1],
        "folders": ["runs/a", "runs/b"],
        "curves": [[0.5, 0.6], [0.4, 0.7]],
        "privacy": "a statement",
    }
