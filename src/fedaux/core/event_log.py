"""Events as JSON lines for log collectors, in the file that $FEDAUX_LOG names. Without
it, nothing is written.

A line has time, level, run, round, site, event and message, and nothing of any record:
a server knows none, and a site logs an error in its records by type, without its text.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

MEGABYTES = 10.0  # of a file
OLD_FILES = 5  # that are kept
LONGEST_TEXT = 500  # characters of a message, which may come from another party


class EventLog:
    """Writes events: `log.write("reply", "berlin has answered", site="berlin",
    round=3)`.
    """

    def __init__(
        self,
        path: Path | None,
        run: str = "",
        megabytes: float = MEGABYTES,
        files: int = OLD_FILES,
    ) -> None:
        self.run = run
        self._handler: _PrivateFile | None = None
        if path is not None:
            self._handler = _PrivateFile(path, int(megabytes * 1e6), files)

    @classmethod
    def from_environment(cls, run: str = "") -> EventLog:
        """Read $FEDAUX_LOG, $FEDAUX_LOG_MB and $FEDAUX_LOG_FILES. Values that are not
        numbers give the defaults.
        """
        path = os.environ.get("FEDAUX_LOG", "")
        if not path:
            return cls(None, run)
        megabytes = _number("FEDAUX_LOG_MB", MEGABYTES)
        files = int(_number("FEDAUX_LOG_FILES", OLD_FILES))
        return cls(Path(path), run, megabytes, files)

    def write(
        self,
        event: str,
        message: str,
        level: int = logging.INFO,
        site: str = "",
        round: int | None = None,
        **facts: Any,
    ) -> None:
        if self._handler is None:
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": logging.getLevelName(level).lower(),
            "run": self.run,
            "round": round,
            "site": site,
            "event": event,
            "message": printable(message),
            **facts,
        }
        message = json.dumps(line, ensure_ascii=False)
        record = logging.LogRecord("fedaux", level, "", 0, message, None, None)
        self._handler.handle(record)

    def close(self) -> None:
        if self._handler is not None:
            self._handler.close()


def printable(text: str) -> str:
    """Make untrusted text safe to show or store: one line, without control characters.
    A long one ends after a whole word, with "…".
    """
    line = "".join(
        letter if letter.isprintable() else " " for letter in text[: LONGEST_TEXT + 1]
    )
    if len(line) <= LONGEST_TEXT:
        return line
    start = line[: LONGEST_TEXT - 1]
    words, _, _ = start.rpartition(" ")
    return (words or start[:-1]) + " …"


class _PrivateFile(RotatingFileHandler):
    """A log file that only its owner can read. A failure to write is reported once and
    otherwise ignored.
    """

    def __init__(self, path: Path, size: int, files: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._warned = False
        super().__init__(
            path, maxBytes=size, backupCount=files, encoding="utf-8", delay=True
        )

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self.baseFilename, flags, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        if self._warned:
            return
        self._warned = True
        error = sys.exc_info()[1]
        warning = f"{self.baseFilename} cannot be written: {error}"
        print(warning, file=sys.stderr, flush=True)


def _number(name: str, default: float) -> float:
    try:
        return max(0.0, float(os.environ.get(name, "")))
    except ValueError:
        return default
