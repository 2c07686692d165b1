"""The one split of the public data: negatives D⁻ to score against, D_distill to distil on, never both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedaux.data.records import Indices


@dataclass(frozen=True, eq=False)
class AuxSplit:
    """Sorted positions in D_aux: a score fitted on a negative must never be asked about it (METHOD.md §1, §2 m)."""

    negatives: Indices
    distill: Indices

    def __post_init__(self) -> None:
        if not len(self.negatives) or not len(self.distill):
            raise ValueError(
                f"the auxiliary split has {len(self.negatives)} negatives and {len(self.distill)} records to distil; "
                "give more auxiliary data, or a share of negatives nearer to 0.2"
            )
        both = np.concatenate([self.negatives, self.distill])
        if len(np.unique(both)) < len(both):
            raise ValueError(
                "negatives and distillation set must be disjoint and without repeats; use AuxSplit.draw to make them so"
            )

    @classmethod
    def draw(cls, size: int, share_negatives: float, rng: np.random.Generator) -> Self:
        """Cut one random order of `size` records in two; `share_negatives` is D⁻'s part."""
        if not 0 < share_negatives < 1:
            raise ValueError(
                f"the share of negatives must lie between 0 and 1, not {share_negatives}; the paper has 0.2"
            )
        negatives, distill = np.split(rng.permutation(size), [round(share_negatives * size)])
        return cls(np.sort(negatives), np.sort(distill))
