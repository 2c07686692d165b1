"""One run, one writer: a lock on a run's folder that names its holder and shows that
the holder is alive.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from fedaux.runs.status import STALE
from fedaux.server.run_state import StateError

LOCK_FILE = "run.lock"
BEAT = 10.0  # seconds between two signs of life


class LockedError(StateError):
    """Another process writes to the folder."""


class RunLock:
    """A lock that a process holds while it writes to a run's folder.

    It is released as soon as the process ends, however it ends (flock). On file systems
    that share folders between machines but not such locks, the file's owner holds the
    lock for as long as it keeps touching the file.
    """

    def __init__(self, folder: Path, beat: float = BEAT, stale: float = STALE) -> None:
        self._folder = folder
        self._path = folder / LOCK_FILE
        self._beat = beat
        self._stale = stale
        self._file = -1
        self._made_folder = False
        self._end = threading.Event()

    def __enter__(self) -> RunLock:
        if self._folder.exists() and not self._folder.is_dir():
            raise StateError(
                f"Cannot run in {self._folder}: it is a file. Give --out another "
                "folder."
            )
        self._made_folder = not self._folder.exists()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = self._open()
        owner = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        os.truncate(self._file, 0)
        os.pwrite(self._file, json.dumps(owner).encode(), 0)
        threading.Thread(target=self._live, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        if self._ours():
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        if self._made_folder:
            with suppress(OSError):  # something is in it
                self._folder.rmdir()

    def check(self) -> None:
        """Raise an error if the lock was lost, as to a machine that saw no sign of
        life; called before every write.
        """
        if self._ours():
            return
        raise LockedError(
            f"Cannot continue: {self._folder} was taken over by another "
            f"process{_name(self._owner())}, because this one was silent for too long. "
            "Leave the run to that process."
        )

    def _open(self) -> int:
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(file)
                raise self._locked() from error
            if _same(self._path, file):
                break
            os.close(file)  # its holder removed it in the meantime
        if self._lives_elsewhere():
            os.close(file)
            raise self._locked()
        return file

    def _lives_elsewhere(self) -> bool:
        """Whether the file has an owner on another machine that still touches it,
        otherwise that owner is dead.
        """
        here = socket.gethostname()
        if self._owner().get("host", here) == here:
            return False
        before = self._touched()
        end = time.monotonic() + self._stale
        while self._touched() == before:
            if time.monotonic() >= end:
                return False
            time.sleep(min(self._beat, 1.0) / 2)
        return True

    def _live(self) -> None:
        while not self._end.wait(self._beat):
            with suppress(OSError):
                os.utime(self._file)

    def _ours(self) -> bool:
        return _same(self._path, self._file)

    def _touched(self) -> int:
        return self._path.stat().st_mtime_ns

    def _owner(self) -> dict[str, object]:
        try:
            return dict(json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}

    def _locked(self) -> LockedError:
        return LockedError(
            f"Cannot run in {self._folder}: it belongs to a run that is not "
            f"finished{_name(self._owner())}, and a second one in the same folder "
            "would have clients train twice. Wait for it, or stop it."
        )


def _name(owner: dict[str, object]) -> str:
    if not owner:
        return ""
    process = f"process {owner.get('pid')} on {owner.get('host')}"
    return f": {process}, since {owner.get('since')}"


def _same(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except OSError:
        return False
