"""The server's side of P2: from releases of a few numbers to each teacher's weight on each public example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.exchange import Arrays, Release
from fedaux.prepare.scoring import Features, Reference, Scorer, teacher_weights

_BLOCK = 2**16  # rows of D_distill at a time


@dataclass(frozen=True)
class Certainty:
    """Post-processing of releases: φ(D⁻) and φ(D_distill) are held per prototype, scores only while they are used.

    `prototype_of` says on which prototype's features a client's release was made.
    """

    scorer: Scorer
    kind: str
    public: Mapping[str, Arrays]
    reference: Mapping[str, Reference]  # φ(D⁻)
    embedded: Mapping[str, Features]  # φ(D_distill)
    prototype_of: Mapping[str, str]

    def log_odds(self, release: Release) -> NDArray[np.float64]:
        """log D_i(x)/D⁻(x) as the client's release has it, over D_distill."""
        label = self.prototype_of[release.client]
        fitted, rows = self.scorer.fit(self.public[label], self.reference[label], release), self.embedded[label]
        return np.concatenate([fitted(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)])

    def peak(self, releases: Sequence[Release]) -> NDArray[np.float64]:
        """The largest log-odds among these clients on each example: the common scale of `teacher_weights`."""
        best = self.log_odds(releases[0])
        for release in releases[1:]:
            np.maximum(best, self.log_odds(release), out=best)
        return best

    def weights(self, release: Release, peak: NDArray[np.float64]) -> NDArray[np.float64]:
        return teacher_weights(self.log_odds(release), peak, self.kind)
