"""Fingerprints of records: the keys under which results made of them are cached."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.data.records import Records, is_text

HASHED_AT_ONCE = 4096  # records that are in memory at a time
LENGTH = 24  # hexadecimal digits of a fingerprint

# of whole arrays, by `id`: the array itself, as long as it lives, and its fingerprint
_fingerprints: dict[int, tuple[Callable[[], object], str]] = {}


def fingerprint_records(records: Records, *extra: object) -> str:
    """Hash the rows and any further values."""
    digest = hashlib.sha256(repr(extra).encode())
    for rows in records.blocks(HASHED_AT_ONCE):
        block = records.gather(rows)
        if not is_text(block):
            digest.update(np.ascontiguousarray(block).data)
            continue
        for string in map(str, block):
            # its length says where a text ends
            digest.update(b"%d:" % len(string))
            digest.update(string.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:LENGTH]


def fingerprint_array(x: NDArray[Any], *extra: object) -> str:
    """Hash a whole array, its type and shape, and any further values. The rows are read
    once per process and array.
    """
    array, rows = _fingerprints.get(id(x), (lambda: None, ""))
    if array() is not x:
        rows = fingerprint_records(Records(x))
        _fingerprints[id(x)] = weakref.ref(x), rows
    key = repr((rows, x.dtype.str, x.shape, extra))
    return hashlib.sha256(key.encode()).hexdigest()[:LENGTH]
