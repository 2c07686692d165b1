"""What a network says about many records: computed once, block by block, and found again by what it was made from."""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import nn

from fedaux.data.records import Records, is_text
from fedaux.exchange import Arrays
from fedaux.files import scratch
from fedaux.privacy import per_record
from fedaux.train.local import look

Rows = NDArray[np.float32]
_ALONE = "alone-1"  # how features of private records are computed: others, of an older version, are not found


def outputs(module: nn.Module, records: Records) -> Rows:
    """The module over all records in eval mode, (N, H): features of an extractor, logits of a model."""
    return _collected(look(module, records), len(records))


def private_outputs(module: nn.Module, records: Records) -> Rows:
    """The same for private records: each passes the network alone."""
    return _collected(per_record.outputs(module, records), len(records))


def transformed(records: Records, transform: Callable[[Rows], NDArray[np.floating]], size: int = 2**14) -> Rows:
    """A row-wise transform of rows that may lie on disk, (N, H) → (N, k)."""
    blocks = ((rows, transform(records.gather(rows))) for rows in records.blocks(size))
    return _collected(blocks, len(records))


def _collected(blocks: Iterable[tuple[slice, NDArray[np.floating]]], count: int) -> Rows:
    """Blocks of rows as one array, which is as wide as the first of them."""
    out: Rows | None = None
    for rows, block in blocks:
        if out is None:
            out = scratch((count, block.shape[1]), np.float32)
        out[rows] = block
    if out is None:
        raise ValueError("there are no records to look at")
    return out


class FeatureCache:
    """Features on disk, memory-mapped. The name of a file is a hash of the extractor and of the records it has seen.

    Features of private records are private: give them a folder of the client's own and `private=True`. Each is then
    computed alone, to the bit a function of its own record, by a network that keeps records apart.
    """

    def __init__(
        self, folder: Path, private: bool = False, watch: Callable[[int, int], None] = lambda done, of: None
    ) -> None:
        self.folder, self.private, self.watch = folder, private, watch

    def features(self, extractor: str, records: Records, module: Callable[[], nn.Module]) -> Rows:
        """Of these records under the extractor with this hash; `module()` is asked for it only if they are new.

        Simulated clients are parts of one pool. As a private row is its record's own, the pool is computed once for
        all of them, however it is split.
        """
        if self.private and records.rows is not None:
            return np.asarray(self.features(extractor, Records(records.x), module)[records.rows])
        name = f"{_ALONE}-{pool_hash(records.x, extractor)}" if self.private else fingerprint(records, extractor)
        path = self.folder / f"features-{name}.npy"
        if not path.is_file():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700 if self.private else 0o755)
            self._write(path, module(), records)
        rows: Rows = np.load(path, mmap_mode="r")
        return rows

    def _write(self, path: Path, module: nn.Module, records: Records) -> None:
        """Row after row into a file that takes its name when it is whole: a full disk is an error, not half a file."""
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # for its owner's eyes only
        try:
            with os.fdopen(handle, "wb") as file:
                for rows, block in per_record.outputs(module, records) if self.private else look(module, records):
                    if rows.start == 0:
                        shape = (len(records), block.shape[1])
                        npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
                    file.write(np.ascontiguousarray(block, np.float32).data)
                    self.watch(rows.stop, len(records))
                os.fchmod(file.fileno(), 0o600 if self.private else 0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


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


def pool_hash(x: NDArray[Any], *facts: object) -> str:
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
