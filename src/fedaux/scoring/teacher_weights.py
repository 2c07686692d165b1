"""The server's side of P2: from releases of a few numbers to each teacher's weight on each public example."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedaux.core.messages import Arrays, Release
from fedaux.data.records import Records
from fedaux.models.inference import transform_rows
from fedaux.scoring.base import Features, Fitted, Reference, Scorer, Vector, teacher_weights

LabelOf = Callable[[str], str]  # client → label of the prototype on whose features its release was made
_BLOCK = 2**16  # rows of D_distill at a time


@dataclass(frozen=True)
class PublicEmbedding:
    """φ(D⁻) and φ(D_distill) of each prototype, which releases are held against: post-processing, so it costs no ε.

    `max_share` is the largest part of the teachers' weight on any example that one of them may have, however certain
    its release makes it.
    """

    scorer: Scorer
    kind: str
    public: Mapping[str, Arrays]
    reference: Mapping[str, Reference]  # φ(D⁻)
    embedded: Mapping[str, Features]  # φ(D_distill)
    label_of: LabelOf
    max_share: float = 1.0

    def teacher_weights(self, releases: Mapping[str, Release], asked: Sequence[str]) -> TeacherWeights:
        """The weights of those of the clients `asked` that have made a release; all releases say what a class is."""
        cohorts: dict[str, list[Release]] = {}
        for client in sorted(releases):  # whoever answered first: sums of reals depend on their order
            cohorts.setdefault(self.label_of(client), []).append(releases[client])
        fitted, rows = {}, {}
        for label, cohort in cohorts.items():
            fit = fitted[label] = self.scorer.fit(self.public[label], self.reference[label], trusted(cohort))
            embedded = self.embedded[label]
            rows[label] = embedded if fit.transform is None else transform_rows(Records(embedded), fit.transform)
        teachers = [client for client in asked if client in releases]
        return TeacherWeights(self.kind, fitted, rows, self.label_of, teachers, self.max_share)


def trusted(releases: Sequence[Release]) -> list[Release]:
    """Releases as the server takes them: none as more exact than the median one, whatever budget it states.

    A large ε costs a liar nothing, and where releases are pooled by their noise all others would drown against it.
    """
    noise = np.array([release.scale / release.sensitivity for release in releases])
    least = float(np.median(noise))
    return [
        replace(release, scale=least * release.sensitivity) if own < (1 - 1e-6) * least else release
        for release, own in zip(releases, noise, strict=True)
    ]


class TeacherWeights:
    """Eq. 4's weights s_i(x) of one round's teachers over D_distill, one teacher at a time."""

    def __init__(
        self,
        kind: str,
        fitted: Mapping[str, Fitted],
        rows: Mapping[str, Features],
        label_of: LabelOf,
        teachers: Sequence[str],
        max_share: float = 1.0,
    ) -> None:
        self._kind, self._fitted, self._rows, self._label_of = kind, fitted, rows, label_of
        self.teachers = frozenset(teachers)
        if not teachers:
            return
        self._peak = self.log_odds(teachers[0])
        for client in teachers[1:]:
            np.maximum(self._peak, self.log_odds(client), out=self._peak)
        self._share = max(max_share, 1 / len(teachers))  # if none may have its even share, all have just that
        self._ceiling = ceiling(map(self._uncut, teachers), self._share)
        self._unit = np.minimum(self._ceiling, 1.0) if self._share < 1 else np.ones(1)

    def log_odds(self, client: str) -> Vector:
        """log D_i(x)/D⁻(x) over D_distill."""
        label = self._label_of(client)
        odds, rows = self._fitted[label].log_odds[client], self._rows[label]
        return np.concatenate([odds(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)])

    def of(self, client: str) -> Vector:
        """In units of the largest among the teachers, or of what the largest is cut to: a common factor is free."""
        return np.minimum(self._uncut(client) / self._unit, 1.0)

    def share(self, weights: Vector) -> float:
        """What such weights are of those of all teachers, on average over D_distill; `ceiling` makes that sum known."""
        return float(np.mean(weights * self._unit / self._ceiling) * self._share)

    def _uncut(self, client: str) -> Vector:
        return teacher_weights(self.log_odds(client), self._peak, self._kind)


def ceiling(weights: Iterable[Vector], share: float) -> Vector:
    """The height t at which to cut weights so that none has more than a share c of their sum, on each example.

    Then t = c Σ min(s, t). If the k largest are cut and the others add up to r_k, that is t = c (k t + r_k), or
    t = r_k / (1/c − k). Any other k gives more, as k t + r_k ≥ Σ min(s, t) whichever are cut: the least of them is t.
    Only the largest 1/c weights are held, so memory does not grow with the number of teachers.
    """
    most = math.ceil(1 / share - 1e-9) - 1  # as many may be cut: fewer than 1/c
    largest, rest = np.zeros((most, 1)), np.zeros(1)
    for row in weights:
        ranked = np.sort(np.concatenate([np.broadcast_to(largest, (most, len(row))), row[None]]), axis=0)
        largest, rest = ranked[1:], rest + ranked[0]
    sums = rest + np.concatenate([np.zeros_like(rest)[None], np.cumsum(largest, axis=0)])  # r_k for k = most, …, 0
    return np.asarray((sums / (1 / share - np.arange(most, -1, -1))[:, None]).min(axis=0))
