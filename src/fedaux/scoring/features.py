"""A disk cache of features, keyed by a hash of the extractor and the records.

h0, a prototype's frozen extractor, identified by its hash on server and client."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.arrays import Arrays, fingerprint_arrays
from fedaux.core.progress import WorkProgress, report
from fedaux.data.fingerprints import fingerprint_records
from fedaux.data.records import Records
from fedaux.models import load_state
from fedaux.models.compute import compute_of
from fedaux.models.inference import (
    Rows,
    predict,
    predict_batches,
)


@lru_cache(maxsize=8)
def _mapped(path: Path, written: int) -> Rows:
    """The very same array for all clients that share a pool, as long as the file is the
    same.
    """
    rows: Rows = np.load(path, mmap_mode="r")
    return rows


class FeatureCache:
    """Memory-mapped features of public records. The name of a file is a hash of the
    extractor and of the records.

    Features of private records are in `client.features.PrivateFeatureCache`. Those of
    a network with a `label` are reported as they are computed.
    """

    folder_mode = 0o755
    file_mode = 0o644

    def __init__(self, folder: Path, label: str = "") -> None:
        self.folder = folder
        self.label = label

    def features(
        self, extractor: str, records: Records, module: Callable[[], nn.Module]
    ) -> Rows:
        """Features of the records under the extractor with this hash. `module()` is
        called only if they are missing.
        """
        path = self.folder / f"features-{self.key(extractor, records)}.npy"
        if not path.is_file():
            self.folder.mkdir(parents=True, exist_ok=True, mode=self.folder_mode)
            self._write(path, module(), records)
        return _mapped(path, path.stat().st_mtime_ns)

    def key(self, extractor: str, records: Records) -> str:
        return fingerprint_records(records, extractor)

    def outputs(
        self, module: nn.Module, records: Records
    ) -> Iterable[tuple[slice, Rows]]:
        return predict_batches(module, records)

    def _write(self, path: Path, module: nn.Module, records: Records) -> None:
        """Atomic write, block by block: a full disk is an error, not half a file."""
        # readable by its owner only
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                for rows, block in self.outputs(module, records):
                    if rows.start == 0:
                        shape = (len(records), block.shape[1])
                        npy.write_array_header_1_0(
                            file,
                            {"descr": "<f4", "fortran_order": False, "shape": shape},
                        )
                    file.write(np.ascontiguousarray(block, np.float32).data)
                    self._report(rows.stop, len(records))
                os.fchmod(file.fileno(), self.file_mode)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _report(self, done: int, total: int) -> None:
        if self.label:
            task = f"features of {self.label}"
            report(WorkProgress(task, done, total, phase="features"))


def extractor_hash(arrays: Arrays, prototype: str) -> str:
    """Hash of the weights, bit for bit, and of the network (a `PrototypeSpec` as
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
