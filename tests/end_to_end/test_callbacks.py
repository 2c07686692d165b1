"""Metrics are complete after a kill at any point, and no callback costs a round;
trackers are real ones, offline.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedaux import Callback, Config, resume, run
from fedaux.runs.callbacks import CLIENTS, METRICS, client_rows, round_metrics
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState
from helpers.tiny import TINY

CONFIG = Config.from_dict(TINY)


def metrics(state: RunState) -> list[dict]:
    return [round_metrics(result) for result in state.history]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    folder = tmp_path_factory.mktemp("done")
    return run(CONFIG, folder / "run", cache=folder / "cache")


def test_every_run_leaves_lines(done: FinishedRun) -> None:
    rows = lines(done.folder / METRICS)
    assert rows == metrics(done.state)
    assert [row["accuracy"] for row in rows] == done.curve
    assert [row["epsilon"] for row in rows] == pytest.approx([1.0, 1.0], rel=1e-4)
    assert rows[0]["seconds"] == pytest.approx(
        sum(v for k, v in rows[0].items() if k.startswith("seconds/"))
    )
    clients = lines(done.folder / CLIENTS)
    assert [(row["round"], row["client"]) for row in clients] == [
        (round_, f"client-00{i}") for round_ in (1, 2) for i in range(3)
    ]


class Faulty(Callback):
    """Always raises in one of its hooks."""

    def __init__(self, hook: str) -> None:
        self.hook, self.calls = hook, list[str]()

    def _hear(self, hook: str) -> None:
        self.calls.append(hook)
        if hook == self.hook:
            raise ConnectionError("the server is down")

    def on_run_start(
        self, config: Config, folder: Path, state: RunState | None
    ) -> None:
        self._hear("on_run_start")

    def on_round_end(self, state: RunState) -> None:
        self._hear("on_round_end")

    def on_run_end(self) -> None:
        self._hear("on_run_end")


@pytest.mark.parametrize("hook", ["on_run_start", "on_round_end", "on_run_end"])
def test_a_callback_that_raises_is_mentioned_once_and_costs_no_round_and_no_other_callback(
    hook: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faulty, sound = Faulty(hook), Faulty("")
    result = run(
        CONFIG, tmp_path / "run", cache=tmp_path / "cache", callbacks=[faulty, sound]
    )
    assert RunState.load(tmp_path / "run").round == result.state.round == 2
    assert len(lines(tmp_path / "run" / METRICS)) == 2
    assert sound.calls == ["on_run_start", "on_round_end", "on_round_end", "on_run_end"]
    # it is called again
    assert faulty.calls == (["on_run_start"] if hook == "on_run_start" else sound.calls)
    (warning,) = [
        record.getMessage()
        for record in caplog.records
        if "Faulty" in record.getMessage()
    ]
    assert f"failed in {hook} (ConnectionError: the server is down)" in warning


KILLED = """
import os, signal, sys
from pathlib import Path
from fedaux import Config, run
from fedaux.runs import callbacks
from helpers.tiny import TINY
folder, round_ = Path(sys.argv[1]), int(sys.argv[2])
write = callbacks.JsonLines.on_round_end  # the first to hear of a round
def killed(self, state):
    if state.round == round_:
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, state)
callbacks.JsonLines.on_round_end = killed
run(Config.from_dict({**TINY, "rounds": 2}), folder, cache=folder.parent / "cache",
    callbacks=callbacks.make_callbacks(sys.argv[3:]))
"""


def python(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    """In a process of its own, as trackers keep state in theirs; offline."""
    root = Path(__file__).parents[2]
    env = {
        **os.environ,
        "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}",
        "WANDB_MODE": "offline",
        "OMP_NUM_THREADS": "1",
    }
    env.pop("MLFLOW_TRACKING_URI", None)
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )


@pytest.mark.parametrize("round_", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_kill_between_saving_and_tracking_loses_no_metrics(
    round_: int, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    assert python(KILLED, folder, round_).returncode == -signal.SIGKILL
    assert RunState.load(folder).round == round_
    assert len(lines(folder / METRICS)) == round_ - 1
    state = resume(folder, cache=tmp_path / "cache").state
    assert state.round == 2
    assert lines(folder / METRICS) == metrics(state)
    assert lines(folder / CLIENTS) == [
        row for result in state.history for row in client_rows(result)
    ]


TRACKED = """
import sys
from pathlib import Path
from fedaux import Config, run
from fedaux.runs.callbacks import make_callbacks
from helpers.tiny import TINY
folder, tracker, rounds = sys.argv[1:]
run(Config.from_dict({**TINY, "rounds": int(rounds)}), folder, cache=Path(folder).parent / "cache",
    callbacks=make_callbacks([tracker]))
"""


def tracked(folder: Path, tracker: str, rounds: int) -> None:
    done = python(TRACKED, folder, tracker, rounds)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_tensorboard_has_every_round_after_a_kill_and_a_stop(tmp_path: Path) -> None:
    pytest.importorskip(
        "tensorboard", reason="the extra fedaux[tensorboard] is not installed"
    )
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert (
        python(KILLED, tmp_path / "run", 2, "tensorboard").returncode == -signal.SIGKILL
    )
    for rounds in (2, 3):
        tracked(tmp_path / "run", "tensorboard", rounds)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    found = {event.step: event.value for event in events.Scalars("accuracy")}
    state = RunState.load(tmp_path / "run")
    assert found == pytest.approx(
        {row["round"]: row["accuracy"] for row in metrics(state)}
    )
    assert len(events.Scalars("accuracy")) == 3


@pytest.mark.slow
def test_mlflow_has_every_round_once_after_a_kill_and_a_stop(tmp_path: Path) -> None:
    mlflow = pytest.importorskip(
        "mlflow", reason="the extra fedaux[mlflow] is not installed"
    )

    assert python(KILLED, tmp_path / "run", 2, "mlflow").returncode == -signal.SIGKILL
    tracked(tmp_path / "run", "mlflow", 2)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/run/mlflow.db")
    (experiment,) = [one for one in client.search_experiments() if one.name == "fedaux"]
    runs = client.search_runs([experiment.experiment_id])
    state = RunState.load(tmp_path / "run")
    (only,) = runs
    history = client.get_metric_history(only.info.run_id, "accuracy")
    assert [(m.step, m.value) for m in history] == [
        (row["round"], row["accuracy"]) for row in metrics(state)
    ]
    assert only.info.status == "FINISHED"
    assert only.data.params["data.clients"] == "3"


def test_wandb_keeps_everything_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra fedaux[wandb] is not installed")
    tracked(tmp_path / "run", "wandb", 2)
    (kept,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    state = RunState.load(tmp_path / "run")
    text = kept.read_bytes()
    assert b"bytes_received" in text
    for row in metrics(state):
        assert repr(row["accuracy"]).encode() in text
