"""The server's side of P2: from releases of a few numbers to each teacher's weight on each public example."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedaux.config.sections import TeachersConfig
from fedaux.core.messages import Arrays, Release
from fedaux.data.records import Indices, Records
from fedaux.models.inference import transform_rows
from fedaux.scoring.base import Features, Fit, Fitted, PortableScorer, Reference, Scorer, Vector, teacher_weights

LabelOf = Callable[[str], str]  # client → label of the prototype on whose features its release was made
_BLOCK = 2**16  # rows of D_distill at a time
_SAMPLE = 256  # rows on which the weights that a client states are checked


@dataclass(frozen=True)
class PublicEmbedding:
    """φ(D⁻) and φ(D_distill) of each prototype, which releases are held against: post-processing, so it costs no ε."""

    scorer: Scorer
    teachers: TeachersConfig
    public: Mapping[str, Arrays]
    reference: Mapping[str, Reference]  # φ(D⁻)
    embedded: Mapping[str, Features]  # φ(D_distill)
    label_of: LabelOf

    def teacher_weights(
        self, releases: Mapping[str, Release], asked: Sequence[str], part: Indices | None = None
    ) -> TeacherWeights:
        """The weights of those of the clients `asked` that have made a release, on `part` of D_distill or all of it.

        All releases say what a class is.
        """
        cohorts: dict[str, list[Release]] = {}
        for client in sorted(releases):  # whoever answered first: sums of reals depend on their order
            cohorts.setdefault(self.label_of(client), []).append(releases[client])
        fitted, rows, fits = {}, {}, {}
        for label, cohort in cohorts.items():
            fitted[label], fits[label] = self._fit(label, trusted(cohort))
            embedded = self.embedded[label] if part is None else self.embedded[label][part]
            rows[label] = transformed(fitted[label], embedded)
        known = [client for client in asked if client in releases]
        return TeacherWeights(self.teachers, fitted, rows, self.label_of, known, fits)

    def _fit(self, label: str, cohort: Sequence[Release]) -> tuple[Fitted, Fit]:
        """Also as arrays, where clients weight themselves."""
        scorer, data = self.scorer, (self.public[label], self.reference[label], cohort)
        if self.teachers.run_on == "server":
            return scorer.fit(*data), ({}, {})
        if not isinstance(scorer, PortableScorer):
            raise ValueError(
                f"teachers.run_on = 'clients' needs a scorer that can be sent, and {scorer.name!r} has no fit_arrays "
                "and from_arrays: add them, or set run_on = 'server'"
            )
        fit = scorer.fit_arrays(*data)
        return scorer.from_arrays(*fit), fit


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
        config: TeachersConfig,
        fitted: Mapping[str, Fitted],
        rows: Mapping[str, Features],
        label_of: LabelOf,
        teachers: Sequence[str],
        fits: Mapping[str, Fit] | None = None,
    ) -> None:
        self._kind, self._fitted, self._rows, self._label_of = config.weights, fitted, rows, label_of
        self.teachers = frozenset(teachers)
        if not teachers:
            return
        self._peak = self.log_odds(teachers[0])
        for client in teachers[1:]:
            np.maximum(self._peak, self.log_odds(client), out=self._peak)
        self._share = max(config.max_share, 1 / len(teachers))  # if none may have its even share, all have just that
        self._ceiling = ceiling(map(self._uncut, teachers), self._share)
        self._unit = np.minimum(self._ceiling, 1.0) if self._share < 1 else np.ones(1)
        self._own = {client: arrays for _, own in (fits or {}).values() for client, arrays in own.items()}
        self._shared = {label: {**shared, "peak": self._peak} for label, (shared, _) in (fits or {}).items()}

    def log_odds(self, client: str) -> Vector:
        """log D_i(x)/D⁻(x) over D_distill."""
        label = self._label_of(client)
        return log_odds(self._fitted[label], client, self._rows[label])

    def of(self, client: str) -> Vector:
        """In units of the largest among the teachers, or of what the largest is cut to: a common factor is free."""
        return np.minimum(self._uncut(client) / self._unit, 1.0)

    def share(self, weights: Vector) -> float:
        """What such weights are of those of all teachers, on average over D_distill; `ceiling` makes that sum known."""
        return float(np.mean(weights * self._unit / self._ceiling) * self._share)

    def broadcast(self, client: str) -> tuple[Arrays, Arrays]:
        """(for all clients of a prototype, for this one): what `client_weights` computes the same weights from."""
        return self._shared[self._label_of(client)], self._own[client]

    def check(self, client: str, weights: Vector) -> None:
        """Refuse weights that a client has not computed from its release, on a sample of rows that it cannot know."""
        some, label = np.random.default_rng().integers(len(weights), size=_SAMPLE), self._label_of(client)
        odds = log_odds(self._fitted[label], client, self._rows[label][some])
        if not np.allclose(weights[some], teacher_weights(odds, self._peak[some], self._kind), rtol=0.02, atol=1e-3):
            raise ValueError("its teacher weights are not those of its release")

    def _uncut(self, client: str) -> Vector:
        return teacher_weights(self.log_odds(client), self._peak, self._kind)


def client_weights(scorer: PortableScorer, kind: str, embedded: Features, shared: Arrays, own: Arrays) -> Vector:
    """A client's weights from what it is sent: `TeacherWeights.of` where there is no limit to a teacher's share.

    Odds are relative to the peak of the round's teachers, which the server broadcasts: one number per example.
    """
    fitted = scorer.from_arrays(shared, {"": own})
    return teacher_weights(log_odds(fitted, "", transformed(fitted, embedded)), shared["peak"], kind)


def transformed(fitted: Fitted, embedded: Features) -> Features:
    return embedded if fitted.transform is None else transform_rows(Records(embedded), fitted.transform)


def log_odds(fitted: Fitted, client: str, rows: Features) -> Vector:
    """Of one client on rows after `transformed`, block by block."""
    function, starts = fitted.log_odds[client], range(0, len(rows), _BLOCK)
    return np.concatenate([function(rows[start : start + _BLOCK]) for start in starts])


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
