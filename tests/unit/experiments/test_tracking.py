"""What is told is what happened, everywhere it is told, also after a kill; trackers are the real ones, offline."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux import Config, run
from fedaux.algorithms.results import Result
from fedaux.algorithms.run_state import RunState
from fedaux.config.schema import flatten
from fedaux.core.errors import MissingPackageError, UnknownNameError
from fedaux.core.messages import Failure
from fedaux.experiments.tracking import CLIENTS, METRICS, JsonLines, make_trackers, metrics
from helpers.tiny import TINY

CONFIG = Config.from_dict(TINY)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("done")
    return run(CONFIG, folder / "run", cache=folder / "cache")


def test_every_run_leaves_lines_and_parquet(done: Result) -> None:
    from pyarrow import parquet

    rows = lines(done.folder / METRICS)
    assert rows == metrics(done.state)
    assert [row["accuracy"] for row in rows] == done.curve
    assert [row["epsilon"] for row in rows] == pytest.approx([0.1, 0.1], rel=1e-4)
    assert rows[0]["seconds"] == pytest.approx(sum(v for k, v in rows[0].items() if k.startswith("seconds/")))
    clients = lines(done.folder / CLIENTS)
    assert [(row["round"], row["client"]) for row in clients] == [
        (round_, f"client-00{i}") for round_ in (1, 2) for i in range(3)
    ]
    table = parquet.read_table(done.folder / "metrics.parquet")
    assert table.column("accuracy").to_pylist() == done.curve
    assert parquet.read_table(done.folder / "clients.parquet").num_rows == 6


def test_lines_of_a_round_that_was_never_saved_are_dropped(done: Result, tmp_path: Path) -> None:
    one = JsonLines()
    one.start(CONFIG, tmp_path, None)
    one.saved(done.state)
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"round": 3, "accu')  # killed while writing
    cut = replace(done.state, round=1, history=done.state.history[:1])
    again = JsonLines()
    again.start(CONFIG, tmp_path, cut)
    assert [row["round"] for row in lines(tmp_path / METRICS)] == [1]
    again.saved(cut)  # nothing new
    again.saved(done.state)
    assert [row["round"] for row in lines(tmp_path / METRICS)] == [1, 2]
    assert [row["round"] for row in lines(tmp_path / CLIENTS)] == [1, 1, 1, 2, 2, 2]


def test_failures_are_rows_of_their_own(done: Result, tmp_path: Path) -> None:
    result = replace(done.state.history[0], failures=(Failure("client-001", "no answer"),))
    one = JsonLines()
    one.start(CONFIG, tmp_path, None)
    one.saved(replace(done.state, round=1, history=(result,)))
    assert lines(tmp_path / CLIENTS)[-1] == {"round": 1, "client": "client-001", "failure": "no answer"}
    assert lines(tmp_path / METRICS)[0]["failed"] == 1


def test_settings_are_flat() -> None:
    found = flatten(CONFIG)
    assert found["data.clients"] == 3
    assert found["prototypes"] == '[{"name": "mlp", "features": 8, "hidden": 8}]'


TRACKED = """
import sys
from pathlib import Path
from fedaux import Config, run
from fedaux.experiments.tracking import make_trackers
from helpers.tiny import TINY
folder, tracker, rounds = sys.argv[1:]
run(Config.from_dict({**TINY, "rounds": int(rounds)}), folder, cache=Path(folder).parent / "cache",
    trackers=make_trackers([tracker]))
"""


def tracked(folder: Path, tracker: str, rounds: int) -> None:
    """In a process of its own, as trackers keep state in theirs; offline."""
    root = Path(__file__).parents[3]
    env = {
        **os.environ,
        "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}",
        "WANDB_MODE": "offline",
        "OMP_NUM_THREADS": "1",
    }
    env.pop("MLFLOW_TRACKING_URI", None)
    words = [sys.executable, "-c", TRACKED, str(folder), tracker, str(rounds)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env, cwd=folder.parent)
    assert done.returncode == 0, done.stderr[-2000:]


def test_tensorboard_reads_what_was_written_before_and_after_a_stop(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra fedaux[tensorboard] is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rounds in (1, 3):
        tracked(tmp_path / "run", "tensorboard", rounds)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    found = {event.step: event.value for event in events.Scalars("accuracy")}
    state = RunState.load(tmp_path / "run")
    assert found == pytest.approx({row["round"]: row["accuracy"] for row in metrics(state)})
    assert len(events.Scalars("accuracy")) == 3


def test_mlflow_reads_what_was_written_before_and_after_a_stop(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra fedaux[mlflow] is not installed")

    for rounds in (1, 3):
        tracked(tmp_path / "run", "mlflow", rounds)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/run/mlflow.db")
    (experiment,) = [one for one in client.search_experiments() if one.name == "fedaux"]
    runs = client.search_runs([experiment.experiment_id])
    state = RunState.load(tmp_path / "run")
    found = {m.step: m.value for one in runs for m in client.get_metric_history(one.info.run_id, "accuracy")}
    assert found == pytest.approx({row["round"]: row["accuracy"] for row in metrics(state)})
    assert {one.info.status for one in runs} == {"FINISHED"}
    assert runs[0].data.params["data.clients"] == "3"


def test_wandb_keeps_everything_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra fedaux[wandb] is not installed")
    tracked(tmp_path / "run", "wandb", 2)
    (kept,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    state = RunState.load(tmp_path / "run")
    text = kept.read_bytes()
    assert b"bytes_received" in text
    for row in metrics(state):
        assert repr(row["accuracy"]).encode() in text


def test_a_tracker_that_is_none_and_one_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tensorboard'"):
        make_trackers(["tensorbord"])
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fedaux\[mlflow\]'"):
        make_trackers(["mlflow"])
