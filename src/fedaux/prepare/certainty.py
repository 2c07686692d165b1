"""The server's side of P2: from releases of a few numbers to each teacher's weight on each public example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.data.records import Records
from fedaux.exchange import Arrays, Release
from fedaux.prepare.features import transformed
from fedaux.prepare.scoring import Features, Fitted, Reference, Scorer, teacher_weights

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

    def among(self, known: Mapping[str, Release], asked: Sequence[str]) -> Weighing:
        """The weights of the clients `asked`, by all releases `known`."""
        cohorts: dict[str, list[Release]] = {}
        for client, release in known.items():
            cohorts.setdefault(self.prototype_of[client], []).append(release)
        fitted, seen = {}, {}
        for label, releases in cohorts.items():
            one = fitted[label] = self.scorer.fit(self.public[label], self.reference[label], releases)
            rows = self.embedded[label]
            seen[label] = rows if one.look is None else transformed(Records(rows), one.look)
        return Weighing(self.kind, fitted, seen, self.prototype_of, [client for client in asked if client in known])


class Weighing:
    """Eq. 4's weights s_i(x) of one round's teachers over D_distill, one teacher at a time."""

    def __init__(
        self,
        kind: str,
        fitted: Mapping[str, Fitted],
        seen: Mapping[str, Features],
        prototype_of: Mapping[str, str],
        asked: Sequence[str],
    ) -> None:
        self._kind, self._fitted, self._seen, self._prototype_of = kind, fitted, seen, prototype_of
        self.teachers = frozenset(asked)
        peak: NDArray[np.float64] | None = None
        for client in asked:
            odds = self.log_odds(client)
            peak = odds if peak is None else np.maximum(peak, odds, out=peak)
        self._peak = peak

    def log_odds(self, client: str) -> NDArray[np.float64]:
        """log D_i(x)/D⁻(x) over D_distill."""
        label = self._prototype_of[client]
        odds, rows = self._fitted[label].odds[client], self._seen[label]
        return np.concatenate([odds(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)])

    def weights(self, client: str) -> NDArray[np.float64]:
        """In units of the largest odds among those asked: a common factor is free."""
        assert self._peak is not None
        return teacher_weights(self.log_odds(client), self._peak, self._kind)
