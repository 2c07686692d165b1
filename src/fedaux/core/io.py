"""Atomic writes, appending, names of files, temporary arrays and the cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# in a site's vault: its own data, decoded
DECODED = "decoded"

_cache: ContextVar[Path | None] = ContextVar("cache", default=None)


def write_atomically(path: Path, data: bytes, private: bool = False) -> None:
    """Write a file that is complete or absent, also after a power cut. `private` gives
    it mode 0600.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o600 if private else 0o644)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        folder = os.open(path.parent, os.O_RDONLY)  # makes the rename durable too
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file in a folder that only its owner can read, while other processes
    wait for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def hashed_name(text: str) -> str:
    """Return a file name for a client or a run, hashed so that a path never holds text
    that a server chose.
    """
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def delete_all_but_newest(folder: Path, pattern: str, count: int) -> None:
    """Delete the files that match, except the `count` most recently written."""
    files = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    for path in files[:-count]:
        path.unlink(missing_ok=True)


def write_from(path: Path, start: int, data: bytes) -> None:
    """Replace everything after the first `start` bytes of a file with `data`, on disk
    when this returns.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+b") as file:
        file.truncate(start)
        file.seek(start)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def temporary_array(
    shape: tuple[int, ...], dtype: Any, limit: int = 2**31
) -> NDArray[Any]:
    """Return an array of zeros: in memory up to `limit` bytes, beyond that in a
    memory-mapped temporary file.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size <= limit:
        return np.zeros(shape, dtype)
    # the mapping keeps the unlinked file alive
    with tempfile.NamedTemporaryFile(prefix="fedaux-") as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


@contextmanager
def caching_in(folder: Path) -> Iterator[None]:
    """Keep data converted inside, such as a site's private data, in a folder that only
    its owner can read.
    """
    token = _cache.set(folder)
    try:
        yield
    finally:
        _cache.reset(token)


def cache_folder() -> Path:
    """Return the folder of converted data and pre-trained extractors: $FEDAUX_CACHE, or
    ~/.cache/fedaux.
    """
    folder = _cache.get()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder
    return Path(os.environ.get("FEDAUX_CACHE") or Path.home() / ".cache" / "fedaux")
