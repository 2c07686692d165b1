"""Named arrays, as models and messages hold them, and their fingerprint."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
ArrayTree = dict[str, dict[str, Arrays]]  # arrays by room, label and name


def fingerprint_arrays(*groups: Arrays, facts: object = None) -> str:
    """Hash groups of named arrays: names, types, shapes and every bit. The result has
    256 bits, as hexadecimal text.
    """
    digest = hashlib.sha256(repr(facts).encode())
    for arrays in groups:
        for name in sorted(arrays):
            array = arrays[name]
            digest.update(f"|{name!r}{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        digest.update(b"||")
    return digest.hexdigest()
