"""h0, a prototype's frozen extractor: known by its hash on both sides, its features computed once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from fedaux.config.prototype import PrototypeSpec
from fedaux.core.messages import Arrays
from fedaux.data.records import Records
from fedaux.models import load
from fedaux.models.inference import fingerprint_arrays, outputs
from fedaux.scoring.feature_cache import FeatureCache


def extractor_hash(arrays: Arrays, prototype: str) -> str:
    """What makes features: the weights to the bit and the network (a `PrototypeSpec` as JSON) that they belong to."""
    return fingerprint_arrays(arrays, facts=prototype)


@dataclass(frozen=True, eq=False)
class H0:
    """`module` is the resident network of this prototype: the weights are put into it whenever features are missing."""

    spec: PrototypeSpec
    module: nn.Module = field(repr=False)
    arrays: Arrays = field(repr=False)
    cache: FeatureCache | None = None  # None: features are kept in memory only
    _known: dict[Records, Records] = field(default_factory=dict, repr=False)  # finding a file hashes all its records

    @cached_property
    def hash(self) -> str:
        return extractor_hash(self.arrays, self.spec.to_json())

    def features(self, records: Records) -> Records:
        """The same records as h0 sees them, rows of (N, H): read from the cache or computed into it."""
        if records not in self._known:
            cache = self.cache
            rows = cache.features(self.hash, records, self._loaded) if cache else outputs(self._loaded(), records)
            self._known[records] = Records(rows, None if records.y is None else records.labels)
        return self._known[records]

    def _loaded(self) -> nn.Module:
        load(self.module, self.arrays)
        return self.module
