"""A run over scripted clients, killed at every point of its saving in turn, and resumed
each time.

    python kill_points.py FOLDER EVERY [KEY=VALUE …]

`FOLDER/whole` is never killed. `FOLDER/KIND-N` is killed by SIGKILL at the N-th call:
before bytes are made durable (`fsync`), before a file is replaced (`replace`), or with
half of the bytes of an append written (`torn`), for every N from 1 on, or only every
third, EVERY = 3.
"""

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch

from fedaux.config.schema import Config
from fedaux.runs.folders import stored_state
from fedaux.runs.session import run_in_folder
from fedaux.server import run_writer
from helpers.scripted import CONFIG, Scripted, make_server


def go_on(folder: Path) -> None:
    config = Config.from_dict(CONFIG.to_dict(), sys.argv[3:])
    run_in_folder(folder, make_server(config), Scripted(), stored_state(config, folder))


def in_child(action: Callable[[], None]) -> int:
    """How the process ended that did it."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(kind: str, last: int) -> None:
    """Patch this process."""
    calls = count(1)

    def before(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if next(calls) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments)

        return call

    def tear(path: Path, start: int, data: bytes) -> None:
        if data and next(calls) == last:
            real_write(path, start, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        real_write(path, start, data)

    real_write = run_writer.write_from
    if kind == "torn":
        run_writer.write_from = tear
    else:
        setattr(os, kind, before(getattr(os, kind)))


def killed(folder: Path, kind: str, last: int) -> bool:
    """Whether the run came to that point, and died there."""

    def action() -> None:
        die_at(kind, last)
        go_on(folder)

    code = in_child(action)
    assert code in (0, -signal.SIGKILL), code
    return code != 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    assert in_child(lambda: go_on(place / "whole")) == 0
    for kind in ("fsync", "replace", "torn"):
        for last in count(1, int(sys.argv[2])):
            folder = place / f"{kind}-{last}"
            if not killed(folder, kind, last):
                break
            assert in_child(lambda: go_on(folder)) == 0, folder  # noqa: B023
