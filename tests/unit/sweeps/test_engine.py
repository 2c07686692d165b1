"""What the folder of a sweep holds is read, and finished runs are not run again."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.core.progress import ProgressEvent, SweepProgress
from fedaux.server.run_writer import RunWriter
from fedaux.sweeps.engine import read_sweep, run_sweep
from fedaux.sweeps.grid import Sweep
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


@pytest.fixture
def sweep() -> Sweep:
    return Sweep.of(TINY_CONFIG, {"method": ["fedavg", "fedaux"]}, seeds=2)


def test_arms_without_a_finished_run_are_left_out(sweep: Sweep, tmp_path: Path) -> None:
    assert read_sweep(sweep, tmp_path).arms == ()
    first, *_, last = sweep.runs(tmp_path)
    result = finished_run(first.folder, first.config)
    RunWriter(last.folder).save(replace(finished_run(last.folder, last.config).state, round=1))  # one of two rounds
    (arm,) = read_sweep(sweep, tmp_path).arms
    assert (arm.label, arm.seeds, arm.folders) == ("FedAVG", (0,), (first.folder,))
    assert arm.curves.tolist() == [result.curve]
    assert arm.privacy == ""


def test_only_methods_that_release_anything_have_a_statement(sweep: Sweep, tmp_path: Path) -> None:
    results = [finished_run(run.folder, run.config) for run in sweep.runs(tmp_path)]
    found = read_sweep(sweep, tmp_path)
    assert [(arm.label, arm.privacy) for arm in found.arms] == [("FedAVG", ""), ("FedAUX", results[2].statement)]
    assert found.accuracy["FedAUX"] == pytest.approx((results[2].accuracy + results[3].accuracy) / 2)


def test_what_is_finished_is_not_run_again(sweep: Sweep, tmp_path: Path) -> None:
    for run in sweep.runs(tmp_path):
        finished_run(run.folder, run.config)
    events: list[ProgressEvent] = []
    found = run_sweep(sweep, tmp_path, on_progress=events.append)
    assert events == [SweepProgress(4, 4)]
    assert [arm.seeds for arm in found.arms] == [(0, 1), (0, 1)]
    assert found.failures == ()
