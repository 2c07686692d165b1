"""The split of the public data D_aux into negatives D⁻ and distillation set D_distill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedaux.data.records import Indices


@dataclass(frozen=True, eq=False)
class AuxSplit:
    """Sorted, disjoint positions in D_aux: scores fitted on a record must not be evaluated on it."""

    negatives: Indices
    distill: Indices

    def __post_init__(self) -> None:
        if not len(self.negatives) or not len(self.distill):
            raise ValueError(
                f"the auxiliary split has {len(self.negatives)} negatives and {len(self.distill)} records to distil; "
                "give more auxiliary data, or a share of negatives nearer to 0.2"
            )
        positions = np.concatenate([self.negatives, self.distill])
        if len(np.unique(positions)) < len(positions):
            raise ValueError(
                "negatives and distillation set must be disjoint and without repeats; use AuxSplit.draw to make them so"
            )

    @classmethod
    def draw(cls, size: int, fraction: float, rng: np.random.Generator) -> Self:
        """A random split of `size` records; `fraction` is the share of D⁻."""
        if not 0 < fraction < 1:
            raise ValueError(f"the share of negatives must lie between 0 and 1, not {fraction}; the paper has 0.2")
        negatives, distill = np.split(rng.permutation(size), [round(fraction * size)])
        return cls(np.sort(negatives), np.sort(distill))
