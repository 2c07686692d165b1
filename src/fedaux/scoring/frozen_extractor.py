"""h0, a prototype's frozen extractor, identified by its hash on server and client."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.messages import Arrays
from fedaux.data.records import Records
from fedaux.models import load_state
from fedaux.models.compute import compute_of
from fedaux.models.inference import fingerprint_arrays, predict
from fedaux.scoring.feature_cache import FeatureCache


def extractor_hash(arrays: Arrays, prototype: str) -> str:
    """Hash of the weights, to the bit, and of the network (a `PrototypeSpec` as JSON)."""
    return fingerprint_arrays(arrays, facts=prototype)


@dataclass(frozen=True, eq=False)
class H0:
    """`module` is the shared network of this prototype: weights are loaded into it whenever features are missing."""

    spec: PrototypeSpec
    module: nn.Module = field(repr=False)
    arrays: Arrays = field(repr=False)
    cache: FeatureCache | None = None  # None: features are kept in memory only
    _features: dict[Records, Records] = field(default_factory=dict, repr=False)  # a look-up on disk hashes all records

    @cached_property
    def hash(self) -> str:
        return extractor_hash(self.arrays, self.spec.to_json())

    def features(self, records: Records) -> Records:
        """The records' features (N, H), memory-mapped from the cache if there is one, with their labels."""
        if records not in self._features:
            cache, precision = self.cache, compute_of(self.module).precision
            key = self.hash if precision == "float32" else f"{self.hash}-{precision}"
            rows = cache.features(key, records, self._load) if cache else predict(self._load(), records)
            self._features[records] = Records(rows, None if records.y is None else records.labels)
        return self._features[records]

    def _load(self) -> nn.Module:
        load_state(self.module, self.arrays)
        return self.module
