"""The end of a server's app that a user can act on: a sentence, where Flower logs a
traceback, a code and an address of its own documentation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fedaux.core.errors import Exit, exit_code

FLOWER_LOG = logging.getLogger("flwr")
FLOWER_CODE = "Exit Code: "  # how Flower's own last words begin


class SentenceFilter(logging.Filter):
    """Leaves of an error its sentence."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is self._error:
            record.msg = "%s"
            record.args = (str(self._error),)
            record.exc_info = None
            record.exc_text = None
        return not str(record.msg).startswith(FLOWER_CODE)


@contextmanager
def ending_in_a_sentence() -> Iterator[None]:
    """Let Flower log an error of the run inside as its sentence, also one of data; bugs
    keep their tracebacks.
    """
    try:
        yield
    except Exception as error:
        if exit_code(error) is not Exit.BUG:
            FLOWER_LOG.addFilter(SentenceFilter(error))
        raise
