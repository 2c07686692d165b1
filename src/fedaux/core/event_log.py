"""Events as JSON lines for log collectors, in the file that $FEDAUX_LOG names; without
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

MEGABYTES, FILES = 10.0, 5  # of a file, and how many old ones are kept
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
        files: int = FILES,
    ) -> None:
        self.run = run
        self._handler = (
            _PrivateFile(path, int(megabytes * 1e6), files)
            if path is not None
            else None
        )

    @classmethod
    def from_environment(cls, run: str = "") -> EventLog:
        """Read $FEDAUX_LOG, $FEDAUX_LOG_MB and $FEDAUX_LOG_FILES; values that are not
        numbers give the defaults.
        """
        path = os.environ.get("FEDAUX_LOG", "")
        megabytes, files = (
            _number("FEDAUX_LOG_MB", MEGABYTES),
            int(_number("FEDAUX_LOG_FILES", FILES)),
        )
        return cls(Path(path) if path else None, run, megabytes, files)

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
        text = json.dumps(line, ensure_ascii=False)
        self._handler.handle(
            logging.LogRecord("fedaux", level, "", 0, text, None, None)
        )

    def close(self) -> None:
        if self._handler is not None:
            self._handler.close()


def printable(text: str) -> str:
    """Make untrusted text safe to show or store: one line, without control
    characters.
    """
    return "".join(
        letter if letter.isprintable() else " " for letter in text[:LONGEST_TEXT]
    )


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
        descriptor = os.open(
            self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        return os.fdopen(descriptor, "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:
        if not self._warned:
            self._warned = True
            print(
                f"{self.baseFilename} cannot be written: {sys.exc_info()[1]}",
                file=sys.stderr,
                flush=True,
            )


def _number(name: str, default: float) -> float:
    try:
        return max(0.0, float(os.environ.get(name, "")))
    except ValueError:
        return default
