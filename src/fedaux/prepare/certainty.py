"""The server's side of P2: from releases of a few numbers to each teacher's weight on each public example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedaux.exchange import Arrays, Release
from fedaux.prepare.scoring import Features, LogOdds, Scorer, teacher_weights


@dataclass
class Certainty:
    """Post-processing of releases: φ(D⁻) and φ(D_distill) per prototype, a fitted ratio per client, never all scores.

    `prototype_of` says on which prototype's features a client's release was made.
    """

    scorer: Scorer
    kind: str
    public: Mapping[str, Arrays]
    reference: Mapping[str, Features]  # φ(D⁻)
    embedded: Mapping[str, Features]  # φ(D_distill)
    prototype_of: Mapping[str, str]
    fitted: dict[str, LogOdds] = field(default_factory=dict)

    def learn(self, releases: Mapping[str, Release]) -> None:
        """Fit every client not yet known."""
        for client, release in releases.items():
            if client not in self.fitted:
                label = self.prototype_of[client]
                self.fitted[client] = self.scorer.fit(self.public[label], self.reference[label], release)

    def knows(self, client: str) -> bool:
        return client in self.fitted

    def log_odds(self, client: str) -> NDArray[np.float64]:
        """log D_i(x)/D⁻(x) as the client's release has it, over D_distill."""
        return self.fitted[client](self.embedded[self.prototype_of[client]])

    def peak(self, clients: Sequence[str]) -> NDArray[np.float64]:
        """The largest log-odds among these clients on each example: the common scale of `teacher_weights`."""
        known = [client for client in clients if self.knows(client)]
        if not known:
            return np.zeros(len(next(iter(self.embedded.values()))))
        best = self.log_odds(known[0])
        for client in known[1:]:
            np.maximum(best, self.log_odds(client), out=best)
        return best

    def weights(self, client: str, peak: NDArray[np.float64]) -> NDArray[np.float64]:
        return teacher_weights(self.log_odds(client), peak, self.kind)
