"""What the cache holds, how much space it takes, and how to clean it.

Code that writes to the cache defines a `CacheKind` to recognise its entries: decoded
data, features, extractors.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DECODED = "decoded"  # in a site's vault: its own data, decoded
SOURCE = "source.txt"  # in a folder of decoded data: where the data came from
_DAY = 86_400.0


@dataclass(frozen=True)
class CacheKind:
    """Entries whose whole name matches `pattern`, a regular expression; `label` may
    quote its groups.
    """

    pattern: str
    label: str
    private: bool = False


@dataclass(frozen=True)
class CacheEntry:
    """One entry of the cache; `private` if it may hold private records or data derived
    from them.
    """

    path: Path
    kind: str
    bytes: int
    used: float  # when it was last read or written, in seconds of the clock
    source: str = ""
    private: bool = False

    @property
    def days(self) -> float:
        return max(0.0, time.time() - self.used) / _DAY


def list_cache(folder: Path, kinds: Sequence[CacheKind]) -> list[CacheEntry]:
    """List the entries of these kinds in a folder, largest first; the first kind that
    matches counts.
    """
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [entry for path in paths if (entry := _entry(path, kinds)) is not None]
    return sorted(found, key=lambda entry: -entry.bytes)


def clean_cache(entries: Sequence[CacheEntry]) -> int:
    """Delete the entries, and return how many bytes that frees."""
    for entry in entries:
        if entry.path.is_dir():
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            entry.path.unlink(missing_ok=True)
    return sum(entry.bytes for entry in entries)


def _entry(path: Path, kinds: Sequence[CacheKind]) -> CacheEntry | None:
    # of a killed run
    name, half = (
        path.name.removeprefix("."),
        "half-written " if path.name.startswith(".") else "",
    )
    matches = ((kind, re.fullmatch(kind.pattern, name)) for kind in kinds)
    kind, match = next(
        ((kind, match) for kind, match in matches if match), (None, None)
    )
    if kind is None or match is None:
        return None
    stats = (
        [file.stat() for file in path.rglob("*") if file.is_file()]
        if path.is_dir()
        else [path.stat()]
    )
    used = max(max(stat.st_atime, stat.st_mtime) for stat in stats or [path.stat()])
    source = (
        (path / SOURCE).read_text("utf-8").strip() if (path / SOURCE).is_file() else ""
    )
    size = sum(stat.st_size for stat in stats)
    return CacheEntry(
        path, half + match.expand(kind.label), size, used, source, kind.private
    )
