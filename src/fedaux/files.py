"""Files that are either as they were or as they shall be, also after a crash or a power cut."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        folder = os.open(path.parent, os.O_RDONLY)  # the rename itself must survive a power cut as well
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def cache_folder() -> Path:
    """Where converted data and trained extractors wait to be used again: $FEDAUX_CACHE, or ~/.cache/fedaux."""
    return Path(os.environ.get("FEDAUX_CACHE") or Path.home() / ".cache" / "fedaux")
