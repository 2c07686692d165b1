"""Batched forward passes, and hashes of what went into them."""

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

Rows = NDArray[np.float32]
BLOCK = 512  # rows at a time where nothing is learned


def predict_batches(
    module: nn.Module, records: Records, block: int = BLOCK
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """The module's output in eval mode, block by block: logits of a model, features of an extractor."""
    module.eval()
    for rows in records.blocks(block):
        with torch.inference_mode():
            output: NDArray[np.float32] = module(records.batch(rows)).float().numpy()
        yield rows, output


def predict(module: nn.Module, records: Records) -> Rows:
    """The module over all records in eval mode, (N, H): features of an extractor, logits of a model."""
    return stack_blocks(predict_batches(module, records), len(records))


def transform_rows(records: Records, transform: Callable[[Rows], NDArray[np.floating]], size: int = 2**14) -> Rows:
    """A row-wise transform of rows that may lie on disk, (N, H) → (N, k)."""
    blocks = ((rows, transform(records.gather(rows))) for rows in records.blocks(size))
    return stack_blocks(blocks, len(records))


def stack_blocks(blocks: Iterable[tuple[slice, NDArray[np.floating]]], count: int) -> Rows:
    """Blocks of rows as one array, which is as wide as the first of them."""
    out: Rows | None = None
    for rows, block in blocks:
        if out is None:
            out = temporary_array((count, block.shape[1]), np.float32)
        out[rows] = block
    if out is None:
        raise ValueError("there are no records to look at")
    return out


def fingerprint(records: Records, *facts: object) -> str:
    """A hash of the rows and of any further facts: equal fingerprints mean the work need not be done again."""
    digest = hashlib.sha256(repr(facts).encode())
    for rows in records.blocks(4096):
        block = records.gather(rows)
        if is_text(block):
            for text in map(str, block):
                digest.update(b"%d:" % len(text) + text.encode("utf-8", "surrogatepass"))
        else:
            digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()[:24]


def cached_fingerprint(x: NDArray[Any], *facts: object) -> str:
    """`fingerprint` of a whole array, which is read once in a process, however often clients ask for parts of it."""
    known, digest = _hashed.get(id(x), (lambda: None, ""))
    if known() is not x:
        digest = fingerprint(Records(x))
        _hashed[id(x)] = weakref.ref(x), digest
    return hashlib.sha256(repr((digest, facts)).encode()).hexdigest()[:24]


_hashed: dict[int, tuple[Callable[[], object], str]] = {}


def fingerprint_arrays(*rooms: Arrays, facts: object = None) -> str:
    """A hash of named arrays to the bit, names, types and shapes included."""
    digest = hashlib.sha256(repr(facts).encode())
    for arrays in rooms:
        for name in sorted(arrays):
            digest.update(f"|{name}{arrays[name].dtype}{arrays[name].shape}".encode())
            digest.update(np.ascontiguousarray(arrays[name]).data)
        digest.update(b"||")
    return digest.hexdigest()[:24]
