"""kill -9 at every point of saving, then resume: the same run."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedaux.server.run_state import HISTORY, RELEASES, RunState
from fedaux.server.standing import TEACHERS_FOLDER
from helpers.scripted import CONFIG

SCRIPT = Path(__file__).parents[1] / "helpers" / "kill_points.py"


def outcome(folder: Path) -> tuple[Any, ...]:
    """Everything but times and bytes: those of a phase that was repeated count twice,
    or not at all.
    """
    state = RunState.load(folder)
    history = [
        replace(result, seconds={}, bytes_sent=0, bytes_received=0)
        for result in state.history
    ]
    weights = {
        (label, name): array.tobytes()
        for label, arrays in state.weights.items()
        for name, array in arrays.items()
    }
    return (
        state.round,
        history,
        weights,
        state.accounts,
        state.awaiting_reply,
        state.prepared,
        state.last_round,
    )


def teachers(folder: Path) -> dict[str, bytes]:
    """The files of standing teachers, and nothing that a killed run has left."""
    return {
        path.name: path.read_bytes() for path in (folder / TEACHERS_FOLDER).glob("*")
    }


STANDING = ["teachers.standing=true", "fraction=0.5"]


@pytest.mark.parametrize(
    ("every", "overrides"),
    [
        pytest.param(5, [], id="every fifth point"),
        pytest.param(1, [], id="plain", marks=pytest.mark.slow),
        pytest.param(1, STANDING, id="standing teachers", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_killed_anywhere_while_it_saves_goes_on_to_the_same_result(
    every: int, overrides: list[str], tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, str(every), *overrides],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole = outcome(tmp_path / "whole")
    assert whole[0] == CONFIG.rounds == 2
    last = dict.fromkeys(("fsync", "replace", "torn"), 0)
    for folder in tmp_path.iterdir():
        kind, _, number = folder.name.partition("-")
        if number and (folder / HISTORY).is_file():
            assert outcome(folder) == whole, folder.name
            assert teachers(folder) == teachers(tmp_path / "whole"), folder.name
            assert (folder / RELEASES).read_bytes() == (
                tmp_path / "whole" / RELEASES
            ).read_bytes(), folder.name
            assert len((folder / HISTORY).read_bytes().splitlines()) == 2, folder.name
            last[kind] = max(last[kind], int(number))
    # prepared, releases, two rounds: four states, and the start; history, releases and
    # accounts between them
    assert bool(teachers(tmp_path / "whole")) == bool(overrides)
    assert last["replace"] > max(0, 5 - every)
    assert last["torn"] > 6 - every
    assert last["fsync"] > 15 - every
