"""Lines of metrics have no gap and no half line, whatever was cut off; trackers by
name, and what they all share.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.core.errors import MissingPackageError, UnknownNameError
from fedaux.core.failures import Failure
from fedaux.core.results import RoundResult
from fedaux.runs.callbacks import (
    CLIENTS,
    METRICS,
    JsonLines,
    Tracker,
    client_rows,
    make_callbacks,
    round_metrics,
)
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


def metrics(state: RunState) -> list[dict]:
    return [round_metrics(result) for result in state.history]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return finished_run(tmp_path_factory.mktemp("done"))


def test_lines_of_a_round_that_was_never_saved_are_dropped(
    done: FinishedRun, tmp_path: Path
) -> None:
    first = replace(done.state, round=1, history=done.state.history[:1])
    writer = JsonLines()
    writer.on_run_start(TINY_CONFIG, tmp_path, None)
    writer.on_round_end(first)
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"round": 2, "accu')  # killed while writing
    again = JsonLines()
    again.on_run_start(TINY_CONFIG, tmp_path, first)
    assert [row["round"] for row in lines(tmp_path / METRICS)] == [1]
    again.on_round_end(done.state)
    assert [row["round"] for row in lines(tmp_path / METRICS)] == [1, 2]
    assert [row["round"] for row in lines(tmp_path / CLIENTS)] == [1, 1, 1, 2, 2, 2]


def test_failures_are_rows_of_their_own(done: FinishedRun, tmp_path: Path) -> None:
    result = replace(
        done.state.history[0], failures=(Failure("client-001", "no answer"),)
    )
    writer = JsonLines()
    writer.on_run_start(TINY_CONFIG, tmp_path, None)
    writer.on_round_end(replace(done.state, round=1, history=(result,)))
    assert lines(tmp_path / CLIENTS)[-1] == {
        "round": 1,
        "client": "client-001",
        "failure": "no answer",
    }
    assert lines(tmp_path / METRICS)[0]["failed"] == 1


def test_a_write_that_failed_leaves_no_gap_and_no_half_line(
    done: FinishedRun, tmp_path: Path
) -> None:
    writer = JsonLines()
    writer.on_run_start(TINY_CONFIG, tmp_path, None)
    (tmp_path / CLIENTS).unlink()
    (tmp_path / CLIENTS).mkdir()
    with pytest.raises(IsADirectoryError):  # after the metrics were appended
        writer.on_round_end(
            replace(done.state, round=1, history=done.state.history[:1])
        )
    assert len(lines(tmp_path / METRICS)) == 1
    (tmp_path / CLIENTS).rmdir()
    writer.on_round_end(done.state)
    assert lines(tmp_path / METRICS) == metrics(done.state)
    assert lines(tmp_path / CLIENTS) == [
        row for result in done.state.history for row in client_rows(result)
    ]


def test_a_row_has_the_figures_of_its_round_and_leaves_out_what_does_not_exist(
    done: FinishedRun,
) -> None:
    result = done.state.history[-1]
    row = round_metrics(result)
    assert (row["round"], row["accuracy"], row["clients"], row["failed"]) == (
        2,
        done.accuracy,
        3,
        0,
    )
    assert row["seconds"] == 3.0 == row["seconds/train"] + row["seconds/test"]
    assert row["largest_teacher_share"] == pytest.approx(1 / 3)
    assert "distill_loss" not in row
    assert all(isinstance(value, (int, float)) for value in row.values())
    two = round_metrics(replace(result, accuracy={"mlp": 0.2, "cnn": 0.4}))
    assert (two["accuracy"], two["accuracy/mlp"], two["accuracy/cnn"]) == (
        pytest.approx(0.3),
        0.2,
        0.4,
    )


class Recorder(Tracker):
    """Refuses to log once, as a server that is away."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.away = True

    def open(self, config: Config, folder: Path) -> None: ...

    def log(self, result: RoundResult) -> None:
        if self.away:
            self.away = False
            raise ConnectionError
        self.steps.append(result.round)


def test_what_a_tracker_has_missed_it_logs_at_the_next_round_and_once(
    done: FinishedRun, tmp_path: Path
) -> None:
    tracker = Recorder()
    tracker.on_run_start(TINY_CONFIG, tmp_path, None)
    with pytest.raises(ConnectionError):
        tracker.on_round_end(
            replace(done.state, round=1, history=done.state.history[:1])
        )
    tracker.on_round_end(done.state)
    tracker.on_round_end(done.state)
    assert tracker.steps == [1, 2]
    # another run, as in a sweep
    tracker.on_run_start(TINY_CONFIG, tmp_path, done.state)
    assert tracker.steps == [1, 2, 1, 2]


def test_a_tracker_that_is_none_and_one_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tensorboard'"):
        make_callbacks(["tensorbord"])
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingPackageError, match=r"pip install -e '\.\[mlflow\]'"):
        make_callbacks(["mlflow"])


def test_a_secure_sum_has_no_figures_of_one_site(
    done: FinishedRun, tmp_path: Path
) -> None:
    """Every site had 416 records in clients.jsonl, the mean over all sites."""
    config = done.state.config
    federation = replace(config.federation, secure=True)
    secure = replace(config, method="fedavg", federation=federation)
    for settings, names in ((config, {"records", "loss"}), (secure, set[str]())):
        writer = JsonLines()
        writer.on_run_start(settings, tmp_path, done.state)
        rows = lines(tmp_path / CLIENTS)
        assert {row["client"] for row in rows} >= {"client-000"}
        assert {"records", "loss"} & set(rows[0]) == names
