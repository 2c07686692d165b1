"""What a network says about many records: computed once, block by block, and kept on disk when it is much."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedaux.data.records import Records
from fedaux.files import scratch
from fedaux.train.local import look

Rows = NDArray[np.float32]


def outputs(
    module: nn.Module, records: Records, transform: Callable[[Rows], NDArray[np.floating]] | None = None
) -> Rows:
    """The module over all records in eval mode, (N, H): features of an extractor, logits of a model.

    A row-wise `transform` keeps (N, k) instead.
    """
    out: Rows | None = None
    for rows, block in look(module, records):
        kept = block if transform is None else transform(block)
        if out is None:
            out = scratch((len(records), kept.shape[1]), np.float32)
        out[rows] = kept
    if out is None:
        raise ValueError("there are no records to look at")
    return out


def fingerprint(records: Records, *facts: object) -> str:
    """A hash of the rows and of any further facts: equal fingerprints mean the work need not be done again."""
    digest = hashlib.sha256(repr(facts).encode())
    for rows in records.blocks(4096):
        digest.update(np.ascontiguousarray(records.gather(rows)).data)
    return digest.hexdigest()[:24]
