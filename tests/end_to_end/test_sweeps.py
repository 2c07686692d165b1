"""Sweeps that run: once each, in any number of processes to the same bits, whatever
fails or is stopped.
"""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaux.core.errors import Exit
from fedaux.core.progress import ProgressEvent, SweepProgress, WorkProgress
from fedaux.core.results import RoundResult
from fedaux.server.run_state import HISTORY, STATE_FILE, RunState
from fedaux.sweeps.engine import read_sweep, run_sweep
from fedaux.sweeps.grid import Sweep
from fedaux.sweeps.results import SweepError
from fedaux.sweeps.workers import PoolTask, run_tasks
from helpers.commands import fedaux, paragraph, studies
from helpers.harness import Patience
from helpers.tiny import TINY, TINY_TOML

QUICK = [
    "--seeds",
    "1",
    "--set",
    "pretrain.epochs=0",
    "--set",
    "distill.epochs=1",
    "--set",
    "rounds=1",
]


def test_a_study_runs_on_other_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_own.py").write_text(
        "from fedaux.data.sources import open_source\n\ndef load():\n    return "
        "open_source('digits')\n"
    )
    words = [
        "--set",
        "data.source=my_own:load",
        "--set",
        "sweep.data.alpha=[1.0]",
        "--set",
        "data.clients=3",
    ]
    assert studies(monkeypatch, "one-shot", *QUICK, *words, "--json") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert "One shot. What does a single round reach" in paragraph(err)
    assert [arm["label"] for arm in found["arms"]] == [
        f"{method}, α = 1" for method in ("FedAvg+P", "FedDF+P", "FedAUX")
    ]
    folder = tmp_path / "runs" / "study-one-shot-smoke"
    assert "my_own:load, 3 clients" in (folder / "table.md").read_text()
    for name in (
        "table.csv",
        "table.tex",
        "runs.csv",
        "sweep.json",
        "split.svg",
        "bars.svg",
    ):
        assert (folder / name).is_file(), name


def grid(seeds: int = 1, **axes: Any) -> dict[str, Any]:
    return {**TINY, "privacy": {"unsafe_seed": 0}, "sweep": {"seeds": seeds, **axes}}


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    torch.set_num_threads(1)


def outcome(folder: Path) -> tuple[dict[str, bytes], list[RoundResult]]:
    """Everything of a run but how long it took."""
    state = RunState.load(folder)
    arrays = {
        f"{label}/{name}": a.tobytes()
        for label, room in state.weights.items()
        for name, a in room.items()
    }
    return arrays, [_timeless(result) for result in state.history]


def _timeless(result: RoundResult) -> RoundResult:
    metrics = {
        client: replace(one, seconds=0) for client, one in result.client_metrics.items()
    }
    return replace(result, client_metrics=metrics, seconds={})


def test_nothing_is_done_twice_and_a_longer_list_runs_only_what_is_new(
    tmp_path: Path,
) -> None:
    events: list[ProgressEvent] = []

    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob(STATE_FILE)}

    sweep = Sweep.from_dict(grid(2, **{"local.epochs": [1]}))
    first = run_sweep(sweep, tmp_path / "out")
    before = times()
    longer = Sweep.from_dict(grid(2, **{"local.epochs": [1, 2]}))
    found = run_sweep(longer, tmp_path / "out", on_progress=events.append)
    assert {path: stamp for path, stamp in times().items() if path in before} == before
    assert len(times()) == 4
    assert found.arms[0].curves.tolist() == first.arms[0].curves.tolist()
    runs = [event for event in events if isinstance(event, SweepProgress)]
    assert [(event.done, event.total) for event in runs] == [(2, 4), (3, 4), (4, 4)]
    assert [event.ended for event in runs] == [
        "",
        "local.epochs = 2, seed 0",
        "local.epochs = 2, seed 1",
    ]
    assert [event.accuracy for event in runs[1:]] == found.arms[1].curves[
        :, -1
    ].tolist()
    after = read_sweep(longer, tmp_path / "out")
    assert [arm.to_dict(tmp_path) for arm in after.arms] == [
        arm.to_dict(tmp_path) for arm in found.arms
    ]


def test_parallel_equals_serial_to_the_bit_and_an_extractor_is_trained_once(
    tmp_path: Path,
) -> None:
    table = {
        **grid(2, method=["fedavg", "feddf+p", "fedaux"]),
        "pretrain": {"epochs": 2, "batch_size": 50},
    }
    sweep, events = Sweep.from_dict(table), list[ProgressEvent]()
    serial = run_sweep(sweep, tmp_path / "serial", cache=tmp_path / "one")
    parallel = run_sweep(
        sweep,
        tmp_path / "parallel",
        jobs=2,
        cache=tmp_path / "two",
        on_progress=events.append,
    )
    assert not serial.failures
    assert not parallel.failures
    for one, other in zip(
        sweep.runs(tmp_path / "serial"), sweep.runs(tmp_path / "parallel"), strict=True
    ):
        assert outcome(one.folder) == outcome(other.folder)
    cards = sorted(path.name for path in (tmp_path / "two").glob("extractor-*.json"))
    assert len(cards) == 2  # of two seeds, whose auxiliary data differ
    assert cards == sorted(
        path.name for path in (tmp_path / "one").glob("extractor-*.json")
    )
    pretraining = [
        event
        for event in events
        if isinstance(event, WorkProgress) and event.phase == "pretrain"
    ]
    assert sorted(event.run for event in pretraining if event.done == 1) == [
        "extractor 1",
        "extractor 2",
    ]
    notes = [
        event.note for event in pretraining if not event.run.startswith("extractor")
    ]
    assert notes == ["from the cache"] * 4
    names = {
        f"{label}, seed {seed}"
        for label in ("FedAvg", "FedDF+P", "FedAUX")
        for seed in (0, 1)
    }
    assert {event.run for event in events} == {"", "extractor 1", "extractor 2", *names}


BROKEN = """
import os, signal
from dataclasses import replace
import numpy as np
from fedaux.data.sources import open_source

def wrong():
    raise ValueError("no such records")

class Rows(np.ndarray):
    def __getitem__(self, rows):
        raise RuntimeError("nobody foresaw this")

def bug():
    found = open_source("digits")
    return replace(found, train=replace(found.train, x=found.train.x.view(Rows)))

def killed():
    os.kill(os.getpid(), signal.SIGKILL)
"""


# errors of worker processes: test_tasks_that_need_one_that_failed, a killed worker
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_failing_arm_does_not_end_the_others(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    jobs: int,
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    lines = '"data.source" = ["broken:wrong", "digits", "broken:bug"]'
    (tmp_path / "grid.toml").write_text(f"{TINY_TOML}[sweep]\n{lines}\n")
    words = ("sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--jobs", jobs)
    assert fedaux(monkeypatch, *words, "--set", "rounds=1") == Exit.DATA
    out, err = capsys.readouterr()
    assert "2 of 3 runs failed. " in paragraph(err)
    reason = (
        "Cannot use source 'broken:wrong': it failed with ValueError: no such records"
    )
    assert f"data.source = broken:wrong, seed 0: {reason}" in paragraph(err)
    assert "Run the same command again: it continues with what is missing" in paragraph(
        err
    )
    assert len(err.strip().splitlines()) == 1
    assert "data.source = digits" in out
    saved = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert [arm["label"] for arm in saved["arms"]] == ["data.source = digits"]
    assert sorted(one["code"] for one in saved["failures"]) == [4, 70]
    (trace,) = (tmp_path / "out" / "runs").rglob("error.txt")
    assert "RuntimeError: nobody foresaw this" in trace.read_text()


def test_a_killed_worker_costs_its_run_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    sweep = Sweep.from_dict(grid(**{"data.source": ["broken:killed", "digits"]}))
    found = run_sweep(sweep, tmp_path / "out", jobs=2)
    assert [arm.label for arm in found.arms] == ["data.source = digits"]
    with pytest.raises(
        SweepError, match="its process was ended by signal 9 from outside: often memory"
    ) as caught:
        found.raise_failures()
    assert caught.value.code is Exit.STOPPED


def test_a_folder_that_holds_another_run_fails_that_run(tmp_path: Path) -> None:
    run_sweep(Sweep.from_dict(grid(method=["fedavg"])), tmp_path / "out")
    changed = Sweep.from_dict(grid(method=["fedavg", "fedprox"]), ["local.lr=0.5"])
    found = run_sweep(changed, tmp_path / "out")
    assert [arm.label for arm in found.arms] == ["FedProx"]
    (failed,) = found.failures
    assert failed.error.code is Exit.FOLDER
    assert "holds another run, because it differs in local" in failed.error.text


LONG = f"{TINY_TOML}[privacy]\nunsafe_seed = 0\n[sweep]\nseeds = 2\nmethod = ['feddf', 'fedaux']\n".replace(
    "rounds = 2",
    "rounds = 60",  # so many that it cannot end before it is stopped
)


def started(folder: Path) -> subprocess.Popen[str]:
    (folder / "long.toml").write_text(LONG)
    program = [sys.executable, "-c", "from fedaux.cli import main; main()"]
    words = [*program, "sweep", "long.toml", "--out", "out", "--jobs", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        words,
        cwd=folder,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
        **pipes,
    )


def heed_interrupts() -> None:
    """Also where the tests run in the background: a shell then starts them with
    interrupts ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_rounds(folder: Path, rounds: int) -> None:
    """Until some run has so many rounds."""
    patience = Patience(90)
    while not patience.over():
        for path in folder.rglob(HISTORY):
            if path.read_text().count("\n") >= rounds:
                return
        time.sleep(0.05)
    raise AssertionError(f"no run of {folder} came to {rounds} rounds")


def nobody_left(group: int) -> bool:
    """Whether every process of the group has ended, soon."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep, never stopped, in one process."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole")
    (folder / "long.toml").write_text(LONG)
    run_sweep(Sweep.load(folder / "long.toml"), folder / "out", cache=folder / "cache")
    return folder / "out"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_stopped_in_the_middle_it_goes_on_to_the_same_bits(
    how: str, tmp_path: Path, whole: Path
) -> None:
    process = started(tmp_path)
    wait_for_rounds(tmp_path / "out", 3)
    if how == "kill":
        process.kill()  # the program alone: its workers must notice by themselves
    else:
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody hears it
    _, err = process.communicate(timeout=60)
    assert nobody_left(process.pid)
    assert "Traceback" not in err
    if how == "interrupt":
        assert process.returncode == Exit.STOPPED
        assert "The same command" in err
    sweep = Sweep.load(tmp_path / "long.toml")
    assert len(read_sweep(sweep, tmp_path / "out").arms) < 2
    again = run_sweep(sweep, tmp_path / "out")
    assert not again.failures
    for one, other in zip(sweep.runs(tmp_path / "out"), sweep.runs(whole), strict=True):
        assert outcome(one.folder) == outcome(other.folder)
    assert not list((tmp_path / "out" / "runs").rglob(".state*"))


def test_a_sweep_prints_and_writes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = 'title = "Tiny"\nseeds = 2\nmethod = ["fedavg", "fedaux"]\n"data.alpha" = [0.1, 10.0]'
    (tmp_path / "grid.toml").write_text(
        f"{TINY_TOML}[privacy]\nunsafe_seed = 0\n[sweep]\n{lines}\n"
    )
    words = ("sweep", tmp_path / "grid.toml", "--out", tmp_path / "out")
    assert fedaux(monkeypatch, *words) == 0
    shown = paragraph(capsys.readouterr().out)
    assert "α = 0.1" in shown
    assert "NOT PRIVATE" in shown
    for name in ("table.md", "table.tex", "table.csv"):
        assert "NOT PRIVATE" in (tmp_path / "out" / name).read_text(), name
    for name in ("curves-data.alpha-0.1.svg", "curves-data.alpha-10.svg"):
        assert (tmp_path / "out" / name).read_text().count(
            '<polyline class="curve'
        ) == 2

    assert fedaux(monkeypatch, *words, "--json", "--jobs", 2) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arms"][0]["label"] == "FedAvg, α = 0.1"
    assert np.array(found["arms"][0]["curves"]).shape == (2, 2)
    assert all(
        (tmp_path / "out" / folder / STATE_FILE).is_file()
        for arm in found["arms"]
        for folder in arm["folders"]
    )


def _fine() -> None:
    pass


def _fails() -> None:
    raise ValueError("no luck")


def test_tasks_that_need_one_that_failed_fail_with_it_and_may_be_the_last() -> None:
    """No worker is busy any more when they are found to lack it: the pool must not wait
    for a message from nobody.
    """
    tasks = [PoolTask("first", _fails), PoolTask("second", _fine, frozenset({"first"}))]
    tasks.append(PoolTask("third", _fine, frozenset({"second"})))
    ended = {task.name: error and error.text for task, error in run_tasks(tasks, 2, 1)}
    assert ended == dict.fromkeys(("first", "second", "third"), "no luck")
