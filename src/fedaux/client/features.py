"""Features of private records: each passes the network alone, and they stay where only
the client can read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from torch import nn

from fedaux.data.fingerprints import fingerprint_array
from fedaux.data.records import Records
from fedaux.models.inference import Rows, stack_blocks
from fedaux.privacy import per_record
from fedaux.scoring.features import FeatureCache

_PER_RECORD = "alone-1-"  # version of the per-record computation, part of the file name


def private_outputs(module: nn.Module, records: Records) -> Rows:
    """Features of private records: each passes the network alone."""
    return stack_blocks(per_record.outputs(module, records), len(records))


class PrivateFeatureCache(FeatureCache):
    """Features of private records, which are private: give them a folder of the
    client's own.

    Each is computed alone, bit for bit a function of its own record, by a validated
    network.
    """

    folder_mode = 0o700
    file_mode = 0o600

    def features(
        self, extractor: str, records: Records, module: Callable[[], nn.Module]
    ) -> Rows:
        """Features of the records under the extractor with this hash. `module()` is
        called only if they are missing.

        Simulated clients are parts of one pool. As a row depends on its own record
        only, the pool is computed once for all of them, however it is split.
        """
        if records.rows is None:
            return super().features(extractor, records, module)
        pool = super().features(extractor, Records(records.x), module)
        return np.asarray(pool[records.rows])

    def key(self, extractor: str, records: Records) -> str:
        return _PER_RECORD + fingerprint_array(records.x, extractor)

    def outputs(
        self, module: nn.Module, records: Records
    ) -> Iterable[tuple[slice, Rows]]:
        return per_record.outputs(module, records)
