"""A file as lines that are read one by one, so that no line decides how another is
read.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

MAX_FIELD_SIZE = 2**31 - 1  # characters; the csv module's default is 131,072


_SHORT = 6  # bytes of a line that may be its end and a byte order mark only
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # the first bytes of such a file


def is_utf_16(file: Path) -> bool:
    """Whether a file or a .gz begins as UTF-16 does, whose lines cannot be read one by
    one.
    """
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rb") as stream:
        return stream.read(2) in UTF_16


def lines_of(file: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a file or of a .gz, without their ends, which are line feeds. Each
    is decoded separately: bytes that are no characters are replaced.
    """
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rb") as stream:
        for line in stream:
            yield _decoded(line, encoding)


def count_lines(file: Path, encoding: str = "utf-8", empty: bool = True) -> int:
    """How many lines `lines_of` has; without `empty`, of those in which there is
    something. Hardly a line is decoded for that.
    """
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rb") as stream:
        if empty:
            return sum(1 for _ in stream)
        return sum(
            1 for line in stream if len(line) > _SHORT or _decoded(line, encoding)
        )


def _decoded(line: bytes, encoding: str) -> str:
    text = line.decode(encoding, "replace")
    text = text.removesuffix("\n").removesuffix("\r")
    return text.removeprefix("\ufeff")


def split_line(line: str, delimiter: str = ",") -> list[str]:
    """Parse the fields of one line separately: an open quote ends with the line, and a
    malformed line has no fields.
    """
    # most lines have nothing else that a parser looks for, and this is far faster
    if line and '"' not in line and "\r" not in line and "\n" not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
