"""Features of public data, computed once per run and kept on disk when they are many."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedaux.data.records import Records
from fedaux.train.local import look

IN_MEMORY = 2**30  # bytes; more is mapped to a temporary file

Rows = NDArray[np.float32]


def features(
    extractor: nn.Module, records: Records, transform: Callable[[Rows], NDArray[np.floating]] | None = None
) -> Rows:
    """h0 over all records in eval mode, (N, H) float32; or a row-wise `transform` of it, (N, k), without keeping h0."""
    out: Rows | None = None
    for rows, block in look(extractor, records):
        kept = block if transform is None else transform(block)
        if out is None:
            out = _room((len(records), kept.shape[1]))
        out[rows] = kept
    if out is None:
        raise ValueError("there are no records to take features of")
    return out


def fingerprint(records: Records, *facts: object) -> str:
    """A hash of the rows and of any further facts: equal fingerprints mean the work need not be done again."""
    digest = hashlib.sha256(repr(facts).encode())
    for rows in records.blocks(4096):
        digest.update(np.ascontiguousarray(records.gather(rows)).data)
    return digest.hexdigest()[:24]


def _room(shape: tuple[int, int]) -> Rows:
    if shape[0] * shape[1] * 4 <= IN_MEMORY:
        return np.empty(shape, dtype=np.float32)
    with tempfile.NamedTemporaryFile(prefix="fedaux-") as file:  # the map keeps the unlinked file alive
        return np.memmap(file, dtype=np.float32, mode="w+", shape=shape)
