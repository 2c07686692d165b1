"""What only several processes can show: a crash in the middle of a write, a kill, and
requests at once.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedaux.config.sections import PrivacyConfig
from fedaux.models.pretraining.store import read_pretraining_card
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import release_mechanism
from helpers.accounts import enter

TOML = """
prototypes = [{name = "cnn", width = 8, features = 16}]
[pretrain]
epochs = 10
batch_size = 64
min_crop_area = 0.5
flip = false
"""


@pytest.mark.slow
def test_prepare_killed_and_started_again_ends_in_the_same_artifact(
    tmp_path: Path,
) -> None:
    (tmp_path / "run.toml").write_text(TOML)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
    }

    def start(cache: str) -> subprocess.Popen[bytes]:
        program = [
            sys.executable,
            "-c",
            "from fedaux.cli import main; main()",
            "prepare",
            "run.toml",
        ]
        words = ["--cache", cache, "--threads", "1"]
        return subprocess.Popen(
            [*program, *words], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
        )

    assert start("whole").wait() == 0
    victim = start("cut")
    while not list((tmp_path / "cut").glob("*.checkpoint")):
        assert victim.poll() is None
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert not list((tmp_path / "cut").glob("*.safetensors"))
    assert start("cut").wait() == 0
    (whole,), (cut,) = (
        (tmp_path / name).glob("*.safetensors") for name in ("whole", "cut")
    )
    assert whole.name == cut.name
    assert whole.read_bytes() == cut.read_bytes()
    curves = [
        [epoch["loss"] for epoch in read_pretraining_card(path)["curve"]]
        for path in (whole, cut)
    ]
    assert curves[0] == curves[1]
    assert not list((tmp_path / "cut").glob("*.checkpoint"))


def test_a_crash_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    die = (
        "import os; from fedaux.core.io import *; os.fsync = lambda _: os._exit(9)\n"
        "write_atomically(Path({!r}), b'new')"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", die.format(str(path))], check=False
        ).returncode
        == 9
    )
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir() if not one.name.startswith(".")] == [
        "file"
    ]


PRIVACY = PrivacyConfig(epsilon=0.1)


RELEASE_MECHANISM = release_mechanism(3, PRIVACY)


def _race(folder: Path, barrier: Any, answers: Any, mark: int) -> None:
    """In a process of its own: ask at the same moment as the others, and be slow about
    it.
    """

    def draw() -> bytes:
        time.sleep(0.2)
        return bytes([mark])

    barrier.wait()
    answers.put(enter(BudgetStore(folder, PRIVACY), "x", RELEASE_MECHANISM, draw))


def test_processes_that_ask_at_once_get_one_release(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(2), context.Queue()
    racers = [
        context.Process(target=_race, args=(tmp_path, barrier, answers, mark))
        for mark in range(2)
    ]
    for racer in racers:
        racer.start()
    found = [answers.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join(timeout=60)
    assert found[0] == found[1]
    assert [racer.exitcode for racer in racers] == [0, 0]
