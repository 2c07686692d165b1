"""Trackers by name, and what they all share; what each of them logs is tried in end_to_end/test_callbacks.py."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.core.errors import MissingPackageError, UnknownNameError
from fedaux.runs.callbacks import Row
from fedaux.runs.trackers import Tracker, make_callbacks
from helpers.runs import finished_run
from helpers.tiny import TINY_CONFIG


def test_a_tracker_that_is_none_and_one_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tensorboard'"):
        make_callbacks(["tensorbord"])
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'fedaux\[mlflow\]'"):
        make_callbacks(["mlflow"])


class Recorder(Tracker):
    """Refuses to log once, as a server that is away."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.away = True

    def open(self, config: Config, folder: Path) -> None:
        self.logged = 0

    def log(self, row: Row, step: int) -> None:
        if self.away:
            self.away = False
            raise ConnectionError
        self.steps.append(step)


def test_what_a_tracker_has_missed_it_logs_at_the_next_round_and_once(tmp_path: Path) -> None:
    state, tracker = finished_run(tmp_path).state, Recorder()
    tracker.on_run_start(TINY_CONFIG, tmp_path, None)
    with pytest.raises(ConnectionError):
        tracker.on_round_end(replace(state, round=1, history=state.history[:1]))
    tracker.on_round_end(state)
    tracker.on_round_end(state)
    assert tracker.steps == [1, 2]
