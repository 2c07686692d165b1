"""What the cache holds: decoded data, features, extractors; how much room they take, and how to be rid of them."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DECODED = "decoded"  # in a site's vault: what was decoded of its own data
SOURCE = "source.txt"  # in a folder of decoded data: where they came from
_DAY = 86_400.0


@dataclass(frozen=True)
class CacheEntry:
    """`private` is what may hold private records, or be made of them."""

    path: Path
    kind: str
    bytes: int
    used: float  # when it was last read or written, in seconds of the clock
    source: str = ""
    private: bool = False

    @property
    def days(self) -> float:
        return max(0.0, time.time() - self.used) / _DAY


def list_cache(folder: Path) -> list[CacheEntry]:
    """Everything of ours in a folder, largest first; other files are none of our business."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [entry for path in paths if (entry := _entry(path)) is not None]
    return sorted(found, key=lambda entry: -entry.bytes)


def clean_cache(entries: Sequence[CacheEntry]) -> int:
    """Delete them; returns how many bytes are free again."""
    for entry in entries:
        if entry.path.is_dir():
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            entry.path.unlink(missing_ok=True)
    return sum(entry.bytes for entry in entries)


def _entry(path: Path) -> CacheEntry | None:
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    stats = [file.stat() for file in files] or [path.stat()]
    used = max(max(stat.st_atime, stat.st_mtime) for stat in stats)
    name, half = path.name.removeprefix("."), "half-written " if path.name.startswith(".") else ""  # of a killed run
    if path.is_dir() and (match := re.fullmatch(r"(\w+)-[\w]{8,}", name)):
        source = (path / SOURCE).read_text("utf-8").strip() if (path / SOURCE).is_file() else ""
        kind = f"{half}data" if half else f"decoded {match[1]}"
        return CacheEntry(path, kind, size, used, source, private=True)
    if name.startswith("features-"):
        alone = name.startswith("features-alone-")
        kind = "features of private records" if alone else "features"
        return CacheEntry(path, half + kind, size, used, "", alone)
    if name.startswith("extractor-"):
        kinds = {".checkpoint": "unfinished pre-training", ".safetensors": "extractor"}
        kind = f"{half}extractor" if half else kinds.get(path.suffix, "card of an extractor")
        return CacheEntry(path, kind, size, used)
    return None
