"""Batched forward passes, and fingerprints of records and arrays."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedaux.core.io import temporary_array
from fedaux.core.messages import Arrays
from fedaux.data.records import Records, is_text
from fedaux.models.compute import forward

Rows = NDArray[np.float32]
BLOCK = 512  # rows in one forward pass


def predict_batches(module: nn.Module, records: Records, block: int = BLOCK) -> Iterator[tuple[slice, Rows]]:
    """The module's outputs in eval mode, block by block: logits of a model, features of an extractor."""
    module.eval()
    for rows in records.blocks(block):
        with torch.inference_mode():
            output: Rows = forward(module, records.batch(rows)).cpu().numpy()
        yield rows, output


def predict(module: nn.Module, records: Records) -> Rows:
    """The module's outputs for all records in eval mode, (N, H)."""
    return stack_blocks(predict_batches(module, records), len(records))


def transform_rows(records: Records, transform: Callable[[Rows], NDArray[np.floating]], size: int = 2**14) -> Rows:
    """Apply a row-wise transform block by block to rows that may be memory-mapped, (N, H) → (N, k)."""
    blocks = ((rows, transform(records.gather(rows))) for rows in records.blocks(size))
    return stack_blocks(blocks, len(records))


def stack_blocks(blocks: Iterable[tuple[slice, NDArray[np.floating]]], count: int) -> Rows:
    """Concatenate blocks of rows into one array, memory-mapped if it is large."""
    out: Rows | None = None
    for rows, block in blocks:
        if out is None:
            out = temporary_array((count, block.shape[1]), np.float32)
        out[rows] = block
    if out is None:
        raise ValueError("there are no records to process")
    return out


def fingerprint(records: Records, *extra: object) -> str:
    """A hash of the rows and any further values: the key of cached results."""
    digest = hashlib.sha256(repr(extra).encode())
    for rows in records.blocks(4096):
        block = records.gather(rows)
        if is_text(block):
            for text in map(str, block):
                digest.update(b"%d:" % len(text) + text.encode("utf-8", "surrogatepass"))
        else:
            digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()[:24]


def cached_fingerprint(x: NDArray[Any], *extra: object) -> str:
    """`fingerprint` of a whole array, computed once per process and array."""
    reference, digest = _digests.get(id(x), (lambda: None, ""))
    if reference() is not x:
        digest = fingerprint(Records(x))
        _digests[id(x)] = weakref.ref(x), digest
    return hashlib.sha256(repr((digest, extra)).encode()).hexdigest()[:24]


_digests: dict[int, tuple[Callable[[], object], str]] = {}


def fingerprint_arrays(*groups: Arrays, facts: object = None) -> str:
    """A hash of groups of named arrays: names, dtypes, shapes and every bit."""
    digest = hashlib.sha256(repr(facts).encode())
    for arrays in groups:
        for name in sorted(arrays):
            digest.update(f"|{name}{arrays[name].dtype}{arrays[name].shape}".encode())
            digest.update(np.ascontiguousarray(arrays[name]).data)
        digest.update(b"||")
    return digest.hexdigest()[:24]
