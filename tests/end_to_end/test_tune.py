"""Tuning that runs: halving by validation accuracy, stopped and continued, and blind to
test labels.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaux import Config, run
from fedaux.core.errors import Exit
from fedaux.core.progress import ProgressEvent, SweepProgress, report_to
from fedaux.server.run_state import RunState
from fedaux.sweeps.results import SweepError
from fedaux.sweeps.tuning import Tuning, run_tuning
from helpers.commands import fedaux, paragraph
from helpers.tiny import TINY, TINY_TOML

BASE = Config.from_dict({**TINY, "rounds": 4, "privacy": {"unsafe_seed": 0}})
LISTS = {
    "": {
        "local": ({"optimizer": "sgd", "lr": 0.1}, {"optimizer": "adam", "lr": 0.01}),
        "local.epochs": (1, 2),
    }
}


@pytest.fixture(autouse=True)
def one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    torch.set_num_threads(1)


def plan(base: Config = BASE, **changes: Any) -> Tuning:
    return Tuning.of(
        base,
        **({"methods": ["fedavg", "fedaux"], "budget": 4, "grid": LISTS} | changes),
    )


def test_the_better_half_goes_on_and_continues_its_own_run(tmp_path: Path) -> None:
    events: list[ProgressEvent] = []
    with report_to(events.append):
        found = run_tuning(plan(), tmp_path / "out")
    for name, trials in found.trials.items():
        assert [len(trial.scores) for trial in trials].count(2) == 2
        first = sorted((trial.scores[2] for trial in trials), reverse=True)
        assert (
            sorted((t.scores[2] for t in trials if t.rounds == 4), reverse=True)
            == first[:2]
        )
        assert found.winner(name).scores[4] == max(
            trial.scores.get(4, 0.0) for trial in trials
        )
        for trial in trials:
            (one,) = found.runs(trial, trial.rounds, tmp_path / "out")
            assert RunState.load(one.folder).round == trial.rounds
    (best,) = found.runs(found.winner("fedaux"), 4, tmp_path / "out")
    whole = run(best.config, tmp_path / "whole")
    assert whole.curve == [
        result.mean_accuracy for result in RunState.load(best.folder).history
    ]
    counted = [event for event in events if isinstance(event, SweepProgress)]
    assert (counted[0].done, counted[-1].done) == (0, 2 * (4 * 2 + 2 * 2))
    assert {event.total for event in counted} == {24}


@pytest.mark.slow
def test_stopped_it_goes_on_to_the_same_winners_and_runs_nothing_twice(
    tmp_path: Path,
) -> None:
    whole = run_tuning(plan(), tmp_path / "whole")
    seen = 0

    def stop(event: ProgressEvent) -> None:
        nonlocal seen
        seen += isinstance(event, SweepProgress)
        if seen == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), report_to(stop):
        run_tuning(plan(), tmp_path / "out")
    assert run_tuning(plan(), tmp_path / "out").to_dict() == whole.to_dict()
    stamps = {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert run_tuning(plan(), tmp_path / "out").to_dict() == whole.to_dict()
    assert stamps == {
        path: path.stat().st_mtime_ns
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }


POISONED = """
import numpy as np
from sklearn.datasets import load_digits
from fedaux.data.records import Corpus, Records

digits = load_digits()
x, y = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)

def load(poison=False):
    labels = y.copy()
    if poison:
        labels[np.load("test_rows.npy")] = 9 - labels[np.load("test_rows.npy")]
    return Corpus(Records(x, labels), classes=tuple("0123456789"))
"""


def test_nothing_that_tuning_finds_depends_on_test_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The labels of the comparison's test records are turned over, and neither a trial
    nor a winner changes.
    """
    import numpy as np

    from fedaux.data.federated import open_data

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_poisoned_digits.py").write_text(POISONED)
    base = Config.from_dict(
        BASE.to_dict(), ["data.source=my_poisoned_digits:load", "rounds=2"]
    )
    poisoned = Config.from_dict(base.to_dict(), ["data.options.poison=true"])
    rows = open_data(base).test.rows
    assert rows is not None
    np.save(tmp_path / "test_rows.npy", rows)
    clean, other = (
        run_tuning(plan(one), tmp_path / one.hash) for one in (base, poisoned)
    )
    assert clean.trials.keys() == {"fedavg", "fedaux"}
    for name, trials in clean.trials.items():
        assert [trial.scores for trial in trials] == [
            trial.scores for trial in other.trials[name]
        ]
    accuracies = [
        run(one, tmp_path / f"test-{one.hash}").accuracy for one in (base, poisoned)
    ]
    assert accuracies[0] != accuracies[1]  # the poison is there


def test_a_setting_that_diverges_is_the_last_and_another_failure_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = {
        "": {
            "local.lr": (1e19, 1e-3),
            "local.optimizer": ("sgd",),
            "local.epochs": (1,),
            "norm": ("batch",),
        }
    }
    found = run_tuning(plan(methods=["fedavg"], grid=lists, budget=3), tmp_path / "out")
    wild = next(
        trial
        for trial in found.trials["fedavg"]
        if trial.settings.get("local.lr") == 1e19
    )
    assert wild.scores == {2: 0.0}
    assert found.winner("fedavg") is not wild
    (tmp_path / "my_broken.py").write_text(
        "def load():\n    raise ValueError('no such records')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        SweepError, match=r"4 of 4 runs failed.*no such records"
    ) as caught:
        run_tuning(
            plan(
                Config.from_dict(TINY, ["data.source=my_broken:load"]),
                methods=["fedavg"],
            ),
            tmp_path / "broken",
        )
    assert caught.value.code is Exit.DATA


def test_tune_and_compare_from_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lists = "local = [{optimizer = 'sgd', lr = 0.1}]\n'local.epochs' = [2]\n'distill.lr' = [1e-3]\n"
    Path("my.toml").write_text(
        f"{TINY_TOML}[privacy]\nunsafe_seed = 0\n[tune]\n{lists}"
    )
    both = ("my.toml", "--methods", "fedavg,fedaux")
    assert fedaux(monkeypatch, "tune", *both, "--budget", 2) == 0
    shown = paragraph(capsys.readouterr().out)
    assert "2 settings per method at most (2 until round 2), 1 split" in shown
    assert "Winners: runs/my-tune/tuned.json" in shown
    assert fedaux(monkeypatch, "tune", *both, "--budget", 2, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["methods"].keys() == {"fedavg", "fedaux"}
    assert (
        fedaux(monkeypatch, "compare", *both, "--seeds", 2, "--tuned", "runs/my-tune")
        == 0
    )
    assert "Settings: tuned, 2 settings a method tried on validation data" in paragraph(
        capsys.readouterr().out
    )
    folder = Path("runs/my-tuned")
    states = [RunState.load(path) for path in sorted((folder / "runs").iterdir())]
    assert {state.config.data.test_seed for state in states} == {0}
    assert {state.config.data.validation_fraction for state in states} == {0.0}
    for state in states:
        wanted = found["methods"][state.config.method]["settings"]
        assert state.config.local.lr == wanted.get("local.lr", 1e-3)
    assert (
        fedaux(
            monkeypatch,
            "compare",
            "my.toml",
            "--methods",
            "feddf",
            "--tuned",
            "runs/my-tune",
        )
        == Exit.SETTINGS
    )
    assert "Cannot compare feddf: it has not been tuned" in paragraph(
        capsys.readouterr().err
    )
