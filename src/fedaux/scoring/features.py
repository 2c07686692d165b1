"""A disk cache of features, keyed by a hash of the extractor and the records.

h0, a prototype's frozen extractor, identified by its hash on server and client."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.arrays import Arrays, fingerprint_arrays
from fedaux.data.fingerprints import fingerprint_array, fingerprint_records
from fedaux.data.records import Records
from fedaux.models import load_state
from fedaux.models.compute import compute_of
from fedaux.models.inference import (
    Rows,
    predict,
    predict_batches,
    stack_blocks,
)
from fedaux.privacy import per_record

_PER_RECORD = "alone-1-"  # version of the per-record computation, part of the file name


def private_outputs(module: nn.Module, records: Records) -> Rows:
    """Features of private records: each passes the network alone."""
    return stack_blocks(per_record.outputs(module, records), len(records))


@lru_cache(maxsize=8)
def _mapped(path: Path, written: int) -> Rows:
    """The very same array for all clients that share a pool, as long as the file is the
    same.
    """
    rows: Rows = np.load(path, mmap_mode="r")
    return rows


class FeatureCache:
    """Memory-mapped features. The name of a file is a hash of the extractor and of the
    records.

    Features of private records are private: give them a folder of the client's own and
    `private=True`. Each is then computed alone, to the bit a function of its own
    record, by a validated network.
    """

    def __init__(
        self,
        folder: Path,
        private: bool = False,
        on_progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        self.folder, self.private, self.on_progress = folder, private, on_progress

    def features(
        self, extractor: str, records: Records, module: Callable[[], nn.Module]
    ) -> Rows:
        """Features of the records under the extractor with this hash; `module()` is
        called only if they are missing.

        Simulated clients are parts of one pool. As a private row depends on its own
        record only, the pool is computed once for all of them, however it is split.
        """
        if self.private and records.rows is not None:
            return np.asarray(
                self.features(extractor, Records(records.x), module)[records.rows]
            )
        key = (
            _PER_RECORD + fingerprint_array(records.x, extractor)
            if self.private
            else fingerprint_records(records, extractor)
        )
        path = self.folder / f"features-{key}.npy"
        if not path.is_file():
            self.folder.mkdir(
                parents=True, exist_ok=True, mode=0o700 if self.private else 0o755
            )
            self._write(path, module(), records)
        return _mapped(path, path.stat().st_mtime_ns)

    def _write(self, path: Path, module: nn.Module, records: Records) -> None:
        """Atomic write, block by block: a full disk is an error, not half a file."""
        outputs = per_record.outputs if self.private else predict_batches
        # readable by its owner only
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                for rows, block in outputs(module, records):
                    if rows.start == 0:
                        shape = (len(records), block.shape[1])
                        npy.write_array_header_1_0(
                            file,
                            {"descr": "<f4", "fortran_order": False, "shape": shape},
                        )
                    file.write(np.ascontiguousarray(block, np.float32).data)
                    self.on_progress(rows.stop, len(records))
                os.fchmod(file.fileno(), 0o600 if self.private else 0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def extractor_hash(arrays: Arrays, prototype: str) -> str:
    """Hash of the weights, to the bit, and of the network (a `PrototypeSpec` as
    JSON).
    """
    return fingerprint_arrays(arrays, facts=prototype)


@dataclass(frozen=True, eq=False)
class H0:
    """`module` is the shared network of this prototype: weights are loaded into it
    whenever features are missing.
    """

    spec: PrototypeSpec
    module: nn.Module = field(repr=False)
    arrays: Arrays = field(repr=False)
    cache: FeatureCache | None = None  # None: features are kept in memory only
    # a look-up on disk hashes all records
    _features: dict[Records, Records] = field(default_factory=dict, repr=False)

    @cached_property
    def hash(self) -> str:
        return extractor_hash(self.arrays, self.spec.to_json())

    def features(self, records: Records) -> Records:
        """The records' features (N, H), memory-mapped from the cache if there is one,
        with their labels.
        """
        if records not in self._features:
            cache, precision = self.cache, compute_of(self.module).precision
            key = self.hash if precision == "float32" else f"{self.hash}-{precision}"
            rows = (
                cache.features(key, records, self._load)
                if cache
                else predict(self._load(), records)
            )
            self._features[records] = Records(
                rows, None if records.y is None else records.labels
            )
        return self._features[records]

    def _load(self) -> nn.Module:
        load_state(self.module, self.arrays)
        return self.module
