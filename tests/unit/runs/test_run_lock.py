"""One writer at a time; who is dead holds nothing, and who was taken for dead writes no
more.
"""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from fedaux.runs.run_lock import LOCK_FILE, LockedError, RunLock
from fedaux.server.run_state import StateError


def test_a_second_writer_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    with RunLock(tmp_path / "run"):
        with pytest.raises(
            LockedError,
            match=rf"belongs to a run that is not finished: process {os.getpid()} on .*, since 20",
        ):
            RunLock(tmp_path / "run").__enter__()
        RunLock(tmp_path / "other").__enter__()
    with RunLock(tmp_path / "run") as lock:
        lock.check()


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    with RunLock(tmp_path / "a" / "run"):
        assert (tmp_path / "a" / "run" / LOCK_FILE).exists()
    assert not (tmp_path / "a" / "run").exists()
    with RunLock(tmp_path / "b"):
        (tmp_path / "b" / "state").touch()
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["state"]


def test_the_file_of_a_process_that_was_killed_holds_nobody_up(tmp_path: Path) -> None:
    with RunLock(tmp_path) as lock:
        owner = (tmp_path / LOCK_FILE).read_text()
        lock.check()
    (tmp_path / LOCK_FILE).write_text(owner)
    with RunLock(tmp_path):
        pass


def from_elsewhere(folder: Path) -> Path:
    """The lock of a machine whose file locks are not seen here."""
    (folder / LOCK_FILE).write_text(
        json.dumps({"host": "elsewhere", "pid": 7, "since": "today"})
    )
    return folder / LOCK_FILE


def test_a_writer_on_another_machine_counts_while_it_shows_signs_of_life(
    tmp_path: Path,
) -> None:
    path, end = from_elsewhere(tmp_path), threading.Event()

    def beat() -> None:
        while not end.wait(0.01):
            os.utime(path)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(LockedError, match="process 7 on elsewhere, since today"):
            RunLock(tmp_path, beat=0.02, stale=5.0).__enter__()
    finally:
        end.set()
        thread.join()
    started = time.monotonic()
    with RunLock(tmp_path, beat=0.02, stale=0.1):
        assert time.monotonic() - started >= 0.1


def test_a_writer_touches_its_file(tmp_path: Path) -> None:
    with RunLock(tmp_path, beat=0.01):
        os.utime(tmp_path / LOCK_FILE, (0, 0))
        end = time.monotonic() + 10
        while (tmp_path / LOCK_FILE).stat().st_mtime == 0:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_writer_that_lost_its_lock_writes_no_more(tmp_path: Path) -> None:
    with RunLock(tmp_path) as lock:
        (tmp_path / LOCK_FILE).unlink()
        from_elsewhere(tmp_path)
        with pytest.raises(
            LockedError, match="taken over by another process: process 7 on elsewhere"
        ):
            lock.check()
    assert (tmp_path / LOCK_FILE).exists()  # it is the other's


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"is a file\. Give --out another folder"):
        RunLock(tmp_path / "file").__enter__()
