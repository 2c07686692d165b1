"""Many runs from one file: every combination once, in any number of processes to the same bits, whatever fails."""

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

from fedaux.algorithms.run_state import FILE, RunState
from fedaux.config.parsing import ConfigError
from fedaux.config.schema import Config
from fedaux.core.errors import Exit
from fedaux.core.progress import PretrainingProgress, ProgressEvent, SweepProgress, SweepRunProgress
from fedaux.core.results import RoundResult
from fedaux.experiments.sweeps.engine import read_sweep, run_sweep
from fedaux.experiments.sweeps.grid import Sweep
from fedaux.experiments.sweeps.result import SweepError
from helpers.commands import TINY, fedaux, paragraph

TABLE: dict[str, Any] = {
    "rounds": 2,
    "prototypes": [{"name": "mlp", "features": 8, "hidden": 8}],
    "data": {"clients": 3},
    "aux": {"limit": 100},
    "pretrain": {"epochs": 0},
    "privacy": {"unsafe_seed": 0},
}
PROGRAM = [sys.executable, "-c", "from fedaux.cli import main; main()"]


def grid(seeds: int = 1, **axes: Any) -> dict[str, Any]:
    return {**TABLE, "sweep": {"seeds": seeds, **axes}}


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    torch.set_num_threads(1)


def outcome(folder: Path) -> tuple[dict[str, bytes], list[RoundResult]]:
    """Everything of a run but how long it took."""
    state = RunState.load(folder)
    arrays = {f"{label}/{name}": a.tobytes() for label, room in state.weights.items() for name, a in room.items()}
    return arrays, [_timeless(result) for result in state.history]


def _timeless(result: RoundResult) -> RoundResult:
    metrics = {client: replace(one, seconds=0) for client, one in result.client_metrics.items()}
    return replace(result, client_metrics=metrics, seconds={})


def test_every_combination_is_an_arm_with_names_for_folders_and_for_readers(tmp_path: Path) -> None:
    sweep = Sweep.from_dict(grid(2, method=["fedavg+p", "fedaux"], **{"data.alpha": [0.01, 1]}))
    assert [arm.label for arm in sweep.arms] == [
        "FedAVG+P, α = 0.01",
        "FedAVG+P, α = 1",
        "FedAUX, α = 0.01",
        "FedAUX, α = 1",
    ]
    assert sweep.arms[3].settings == {"method": "fedaux", "data.alpha": 1}
    assert sweep.arms[3].config == Config.from_dict(TABLE, ["method=fedaux", "data.alpha=1.0"])
    assert [run.folder.name for run in sweep.runs(tmp_path)[:3]] == [
        "fedavg+p-data.alpha=0.01-seed0",
        "fedavg+p-data.alpha=0.01-seed1",
        "fedavg+p-data.alpha=1-seed0",
    ]
    assert [run.config.seed for run in sweep.runs(tmp_path)] == [0, 1] * 4


def test_nested_tables_say_the_same_and_seeds_start_at_the_configs_own(tmp_path: Path) -> None:
    flat = Sweep.from_dict({**grid(3, **{"data.alpha": [0.1, 1.0], "local.epochs": [1, 2]}), "seed": 5})
    nested = Sweep.from_dict({**grid(3, data={"alpha": [0.1, 1.0]}, local={"epochs": [1, 2]}), "seed": 5})
    assert nested == flat
    assert {run.config.seed for run in flat.runs(tmp_path)} == {5, 6, 7}


def test_what_is_set_is_no_longer_swept_and_lists_can_be_set() -> None:
    table = grid(3, method=["feddf+p", "fedaux"], **{"data.alpha": [0.01, 1.0]})
    pinned = Sweep.from_dict(table, ["data.alpha=0.5", "rounds=1", "sweep.seeds=1"])
    assert [(arm.label, arm.config.data.alpha) for arm in pinned.arms] == [("FedDF+P", 0.5), ("FedAUX", 0.5)]
    assert (pinned.seeds, pinned.base.rounds) == (1, 1)
    changed = Sweep.from_dict(table, ["sweep.data.alpha=[3.0]"])
    assert [arm.config.data.alpha for arm in changed.arms] == [3.0, 3.0]
    (alone,) = Sweep.from_dict(grid(2)).arms
    assert (alone.label, alone.name) == ("FedAUX", "fedaux")


def test_values_that_look_alike_in_a_folders_name_get_different_ones() -> None:
    long = ["x" * 200 + end for end in "ab"]
    names = [arm.name for arm in Sweep.from_dict(grid(**{"data.path": [*long, "a/b", "a b"]})).arms]
    assert len(set(names)) == 4
    assert all("/" not in name and len(name) < 140 for name in names)
    mixed = Sweep.from_dict(grid(prototypes=[["mlp"], ["mlp", {"name": "cnn", "width": 8}]]))
    assert [arm.label for arm in mixed.arms] == ["mlp", "mlp + cnn(width=8)"]
    assert [len(arm.config.prototypes) for arm in mixed.arms] == [1, 2]


@pytest.mark.parametrize(
    ("lines", "fragment"),
    [
        ('"data.alpa" = [1.0]', "unknown key of [sweep] 'data.alpa' (did you mean 'data.alpha'?)"),
        ("sedes = 3", "unknown key of [sweep] 'sedes' (did you mean 'seeds'?)"),
        ("seeds = 0", "sweep.seeds must be a whole number of at least 1, not 0"),
        ("seeds = true", "sweep.seeds must be a whole number of at least 1, not True"),
        ("seeds = [1, 2]", "sweep.seeds must be a whole number"),
        ("seed = [1, 2]", "Write seeds = 3"),
        ('method = "fedaux"', "sweep: method must be a list of values, ['fedaux', …], not 'fedaux' alone."),
        ("rounds = []", "sweep: the list of rounds is empty"),
        ("rounds = [1, 2, 1]", "sweep: rounds has [1] twice"),
        ("rounds = [1, 0]", "the sweep cannot have an arm with rounds=0: rounds must be at least 1"),
        ('method = ["fedaux", "fedvag"]', "did you mean 'fedavg'?"),
        ("title = 3", "sweep.title must be text"),
        ("[sweep.data]\nalpha = 1.0", "data.alpha must be a list of values, [1.0, …]"),
    ],
    ids=lambda value: value[:24],
)
def test_a_wrong_sweep_names_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: str, fragment: str
) -> None:
    (tmp_path / "grid.toml").write_text(f"{TINY}[sweep]\n{lines}\n")
    assert fedaux(monkeypatch, "sweep", tmp_path / "grid.toml", "--out", tmp_path / "out") == 3
    err = capsys.readouterr().err
    assert fragment in paragraph(err)
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_file_without_a_sweep_and_a_sweep_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text(TINY)
    with pytest.raises(ConfigError, match=r"has no table \[sweep\]: add one"):
        Sweep.load(tmp_path / "plain.toml")
    with pytest.raises(ConfigError, match="sweep must be a table"):
        Sweep.from_dict({**TABLE, "sweep": 3})


def test_nothing_is_done_twice_and_a_longer_list_runs_only_what_is_new(tmp_path: Path) -> None:
    events: list[ProgressEvent] = []

    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob(FILE)}

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
    assert [event.run for event in runs] == ["", "local.epochs = 2, seed 0", "local.epochs = 2, seed 1"]
    assert [event.accuracy for event in runs[1:]] == found.arms[1].curves[:, -1].tolist()
    after = read_sweep(longer, tmp_path / "out")
    assert [arm.to_dict(tmp_path) for arm in after.arms] == [arm.to_dict(tmp_path) for arm in found.arms]


def test_parallel_equals_serial_to_the_bit_and_an_extractor_is_trained_once(tmp_path: Path) -> None:
    table = {**grid(2, method=["fedavg", "feddf+p", "fedaux"]), "pretrain": {"epochs": 2, "batch_size": 50}}
    sweep, events = Sweep.from_dict(table), list[ProgressEvent]()
    serial = run_sweep(sweep, tmp_path / "serial", cache=tmp_path / "one")
    parallel = run_sweep(sweep, tmp_path / "parallel", jobs=2, cache=tmp_path / "two", on_progress=events.append)
    assert not serial.failures
    assert not parallel.failures
    for one, other in zip(sweep.runs(tmp_path / "serial"), sweep.runs(tmp_path / "parallel"), strict=True):
        assert outcome(one.folder) == outcome(other.folder)
    cards = sorted(path.name for path in (tmp_path / "two").glob("extractor-*.json"))
    assert len(cards) == 2  # of two seeds, whose auxiliary data differ
    assert cards == sorted(path.name for path in (tmp_path / "one").glob("extractor-*.json"))
    inside = [(event.run, event.event) for event in events if isinstance(event, SweepRunProgress)]
    pretraining = [(run, event) for run, event in inside if isinstance(event, PretrainingProgress)]
    assert sorted(run for run, event in pretraining if event.source == "training" and event.epoch == 1) == [
        "extractor 1",
        "extractor 2",
    ]
    assert [event.source for run, event in pretraining if not run.startswith("extractor")] == ["cache"] * 4
    names = {f"{label}, seed {seed}" for label in ("FedAVG", "FedDF+P", "FedAUX") for seed in (0, 1)}
    assert {run for run, _ in inside} == {"extractor 1", "extractor 2", *names}


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


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_arm_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jobs: int
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    lines = '"data.source" = ["broken:wrong", "digits", "broken:bug"]'
    (tmp_path / "grid.toml").write_text(f"{TINY}[sweep]\n{lines}\n")
    words = ("sweep", tmp_path / "grid.toml", "--out", tmp_path / "out", "--jobs", jobs)
    assert fedaux(monkeypatch, *words, "--set", "rounds=1") == Exit.DATA
    out, err = capsys.readouterr()
    assert "2 of 3 runs failed. " in paragraph(err)
    reason = "source 'broken:wrong' failed: ValueError: no such records"
    assert f"data.source = broken:wrong, seed 0: {reason}" in paragraph(err)
    assert "the same command goes on with what is missing" in paragraph(err)
    assert len(err.strip().splitlines()) == 1
    assert "data.source = digits" in out
    saved = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert [arm["label"] for arm in saved["arms"]] == ["data.source = digits"]
    assert sorted(one["code"] for one in saved["failures"]) == [4, 70]
    (trace,) = (tmp_path / "out" / "runs").rglob("error.txt")
    assert "RuntimeError: nobody foresaw this" in trace.read_text()


def test_a_killed_worker_costs_its_run_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    sweep = Sweep.from_dict(grid(**{"data.source": ["broken:killed", "digits"]}))
    found = run_sweep(sweep, tmp_path / "out", jobs=2)
    assert [arm.label for arm in found.arms] == ["data.source = digits"]
    with pytest.raises(SweepError, match="its process was ended by signal 9 from outside: often memory") as caught:
        found.raise_failures()
    assert caught.value.code is Exit.STOPPED


def test_runs_wait_for_an_extractor_that_failed_only_to_fail_with_it(tmp_path: Path) -> None:
    table = {**grid(**{"pretrain.lr": [1e-3], "method": ["fedavg", "feddf+p", "fedaux"]}), "pretrain": {"epochs": 1}}
    table["prototypes"] = ["encoder"]  # an encoder of text, for images
    found = run_sweep(Sweep.from_dict(table), tmp_path / "out", jobs=2)
    assert not found.arms
    assert len(found.failures) == 3
    assert len({one.error.text for one in found.failures if one.run.config.method != "fedavg"}) == 1


def test_a_folder_that_holds_another_run_fails_that_run(tmp_path: Path) -> None:
    run_sweep(Sweep.from_dict(grid(method=["fedavg"])), tmp_path / "out")
    changed = Sweep.from_dict(grid(method=["fedavg", "fedprox"]), ["local.lr=0.5"])
    found = run_sweep(changed, tmp_path / "out")
    assert [arm.label for arm in found.arms] == ["FedPROX"]
    (failed,) = found.failures
    assert failed.error.code is Exit.FOLDER
    assert "holds another run: it differs in local" in failed.error.text


LONG = f"{TINY}[privacy]\nunsafe_seed = 0\n[sweep]\nseeds = 2\nmethod = ['feddf', 'fedaux']\n".replace(
    "rounds = 2", "rounds = 10"
)


def started(folder: Path, out: str) -> subprocess.Popen[str]:
    (folder / "long.toml").write_text(LONG)
    words = [*PROGRAM, "sweep", "long.toml", "--out", out, "--jobs", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, cwd=folder, text=True, start_new_session=True, **pipes)


def wait_for_rounds(folder: Path, rounds: int) -> None:
    """Until some run has so many rounds."""
    give_up = time.monotonic() + 90
    while time.monotonic() < give_up:
        for path in folder.rglob("history.json"):
            if len(json.loads(path.read_text())) >= rounds:
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


@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_stopped_in_the_middle_it_goes_on_to_the_same_bits(how: str, tmp_path: Path, whole: Path) -> None:
    process = started(tmp_path, "out")
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
    (tmp_path / "grid.toml").write_text(f"{TINY}[privacy]\nunsafe_seed = 0\n[sweep]\n{lines}\n")
    words = ("sweep", tmp_path / "grid.toml", "--out", tmp_path / "out")
    assert fedaux(monkeypatch, *words) == 0
    shown = paragraph(capsys.readouterr().out)
    assert "α = 0.1" in shown
    assert "NOT PRIVATE" in shown
    for name in ("table.md", "table.tex", "table.csv"):
        assert "NOT PRIVATE" in (tmp_path / "out" / name).read_text(), name
    text = (tmp_path / "out" / "table.md").read_text()
    assert text.startswith(
        "Tiny. Test accuracy in %: digits, 3 clients, mlp(features=8, hidden=8), 2 rounds, 2 seed(s)."
    )
    assert "sample standard deviation over seeds (n − 1)" in text
    assert "| method | α = 0.1 | α = 10 |" in text
    for name in ("curves-data.alpha-0.1.svg", "curves-data.alpha-10.svg"):
        assert (tmp_path / "out" / name).read_text().count("<polyline") == 2

    assert fedaux(monkeypatch, *words, "--json", "--jobs", 2) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["arms"][0]["label"] == "FedAVG, α = 0.1"
    assert np.array(found["arms"][0]["curves"]).shape == (2, 2)
    assert all((tmp_path / "out" / folder / FILE).is_file() for arm in found["arms"] for folder in arm["folders"])
