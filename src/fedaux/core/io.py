"""Files that are either as they were or as they shall be, also after a crash or a power cut; scratch space; cache."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_atomically(path: Path, data: bytes, private: bool = False) -> None:
    """`private` files are for their owner's eyes only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o600 if private else 0o644)
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


def temporary_array(shape: tuple[int, ...], dtype: Any, limit: int = 2**31) -> NDArray[Any]:
    """Zeros to work on: in memory up to `limit` bytes, beyond that in a file that vanishes with them."""
    if int(np.prod(shape)) * np.dtype(dtype).itemsize <= limit:
        return np.zeros(shape, dtype)
    with tempfile.NamedTemporaryFile(prefix="fedaux-") as file:  # the map keeps the unlinked file alive
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)


def cache_folder() -> Path:
    """Where converted data and trained extractors wait to be used again: $FEDAUX_CACHE, or ~/.cache/fedaux."""
    return Path(os.environ.get("FEDAUX_CACHE") or Path.home() / ".cache" / "fedaux")
