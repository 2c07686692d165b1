"""Batched forward passes, and fingerprints of records and arrays."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaux.core.io import temporary_array
from fedaux.core.messages import Arrays
from fedaux.data.records import Records, is_text
from fedaux.models.compute import compute_of, forward
from fedaux.models.registry import folded, is_linear_head

Rows = NDArray[np.float32]
MIN_BLOCK, MAX_BLOCK, DEFAULT_BLOCK, HEAD_BLOCK = 16, 4096, 512, 8192  # rows in one forward pass
INPUT_BYTES, ACTIVATION_BYTES = 3 * 2**19, 10 * 2**20  # of a block: limits found by measuring five networks
_activations: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()  # bytes for one row


def predict_batches(
    module: nn.Module, records: Records, block: int = 0, workers: int = 1
) -> Iterator[tuple[slice, Rows]]:
    """The module's outputs in eval mode, block by block: logits of a model, features of an extractor.

    Workers are threads, one torch thread each, that take different blocks: the same calls, so the same bits.
    """
    module.eval()
    plain, network = is_linear_head(module), folded(module)

    def outputs(rows: slice) -> tuple[slice, Rows]:
        with torch.inference_mode():
            return rows, forward(network, records.batch(rows, view=plain)).cpu().numpy()

    blocks = records.blocks(block or block_rows(module, records))
    if workers == 1:
        yield from map(outputs, blocks)
        return
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(outputs, blocks)


def block_rows(module: nn.Module, records: Records) -> int:
    """Rows in one forward pass: a power of two that keeps inputs and the largest activation in the processor's cache.

    Blocks of 512 images took ResNet-8 of width 16 1.8 times as long as blocks of 128; width 64 wants 32. A head reads
    every row once, cache or not.
    """
    if is_text(records.x) or compute_of(module).device.type != "cpu":
        return DEFAULT_BLOCK
    if is_linear_head(module):
        return HEAD_BLOCK
    if module not in _activations:
        _activations[module] = largest_activation(module, records)
    rows = min(INPUT_BYTES // (4 * prod(records.shape)), ACTIVATION_BYTES // max(1, _activations[module]), MAX_BLOCK)
    return 1 << max(rows, MIN_BLOCK).bit_length() - 1


def largest_activation(module: nn.Module, records: Records) -> int:
    """Bytes of the largest output of any submodule for one record."""
    sizes: list[int] = [0]

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        sizes.append(output.nbytes if isinstance(output, Tensor) else 0)

    handles = [child.register_forward_hook(note) for child in module.modules()]
    try:
        with torch.inference_mode():
            forward(module, records.batch(slice(0, 2)))  # a network may refuse a single row
    finally:
        for handle in handles:
            handle.remove()
    return max(sizes) // min(2, len(records))


def predict(module: nn.Module, records: Records, workers: int = 1) -> Rows:
    """The module's outputs for all records in eval mode, (N, H)."""
    return stack_blocks(predict_batches(module, records, workers=workers), len(records))


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
    """`fingerprint` of a whole array with its type and shape, computed once per process and array."""
    reference, digest = _digests.get(id(x), (lambda: None, ""))
    if reference() is not x:
        digest = fingerprint(Records(x))
        _digests[id(x)] = weakref.ref(x), digest
    return hashlib.sha256(repr((digest, x.dtype.str, x.shape, extra)).encode()).hexdigest()[:24]


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
