"""The server's side of P2: from releases of a few numbers to each teacher's weight on
each public example.

Where clients' odds are mixtures of density ratios that they share (`Fitted.mixtures`),
weights are a matrix product in single precision, the precision of the ratios
themselves; otherwise each client's log-odds function is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit

from fedaux.config.distillation import TeachersConfig
from fedaux.core.arrays import Arrays
from fedaux.core.io import temporary_array
from fedaux.data.records import Indices, Records
from fedaux.messages import Release
from fedaux.models.inference import transform_rows
from fedaux.scoring.base import (
    Features,
    Fit,
    Fitted,
    PortableScorer,
    PublicScorer,
    Reference,
    Vector,
)
from fedaux.scoring.pooled import PooledWeights

# client → label of the prototype on whose features its release was made
LabelOf = Callable[[str], str]
_SAMPLE = 256  # rows on which the weights that a client states are checked
MIN_WEIGHT = 1e-8  # the paper's ξ: every teacher keeps a positive weight
ENTRIES = 2**18  # teachers × examples at a time
_BLOCK = 2**16  # examples at a time, of one client
# of exponents: e^-60 of any coefficient is no weight, e^60 of all of them is a float32
_RANGE = 60.0


@dataclass(frozen=True)
class PublicEmbedding:
    """φ(D⁻) and φ(D_distill) of each prototype, which releases are held against:
    post-processing, so it costs no ε.
    """

    scorer: PublicScorer
    teachers: TeachersConfig
    public: Mapping[str, Arrays]
    reference: Mapping[str, Reference]  # φ(D⁻)
    embedded: Mapping[str, Features]  # φ(D_distill)
    label_of: LabelOf
    _cohorts: dict[str, Cohort] = field(default_factory=dict, init=False, repr=False)

    def teacher_weights(
        self,
        releases: Mapping[str, Release],
        asked: Sequence[str],
        part: Indices | None = None,
    ) -> TeacherWeights:
        """Return the weights of the clients `asked` that have made a release, on `part`
        of D_distill or all of it.

        All releases say what a class is.
        """
        cohorts: dict[str, list[Release]] = {}
        # independent of arrival order: sums of reals depend on their order
        for client in sorted(releases):
            cohorts.setdefault(self.label_of(client), []).append(releases[client])
        for label, cohort in cohorts.items():
            known = self._cohorts.get(label)
            if known is None or known.releases != cohort:  # by identity
                self._cohorts[label] = self._fit(label, cohort)
        fits = {label: self._cohorts[label] for label in cohorts}
        return TeacherWeights(
            self.teachers,
            {label: cohort.fitted for label, cohort in fits.items()},
            {
                label: cohort.rows if part is None else cohort.rows[part]
                for label, cohort in fits.items()
            },
            self.label_of,
            [client for client in asked if client in releases],
            {label: cohort.fit for label, cohort in fits.items()},
        )

    def pooled_weights(
        self,
        pooled: Mapping[str, Release],
        asked: Sequence[str],
        part: Indices | None = None,
    ) -> PooledWeights:
        """Return what clients weight themselves by, from the secure sums of all
        releases.

        The odds of all clients together bound those of each, and stand in for the
        largest, which nobody knows.
        """
        fits = {}
        for label in {self.label_of(client) for client in asked} & set(pooled):
            known = self._cohorts.get(label)
            if known is None or known.releases != [pooled[label]]:
                self._cohorts[label] = self._fit(label, [pooled[label]])
            cohort = self._cohorts[label]
            rows, name = (
                cohort.rows if part is None else cohort.rows[part],
                pooled[label].client,
            )
            fits[label] = (
                {**cohort.fit[0], "peak": log_odds(cohort.fitted, name, rows)},
                cohort.fit[1][name],
            )
        labels = {
            client: self.label_of(client)
            for client in asked
            if self.label_of(client) in fits
        }
        return PooledWeights(frozenset(labels), fits, labels)

    def _fit(self, label: str, releases: list[Release]) -> Cohort:
        """Fit the scorer to releases, also as arrays if clients compute their own
        weights.
        """
        scorer, data = (
            self.scorer,
            (self.public[label], self.reference[label], cap_precision(releases)),
        )
        if self.teachers.run_on == "server":
            fitted, fit = scorer.fit(*data), (Arrays(), dict[str, Arrays]())
        elif not isinstance(scorer, PortableScorer):
            raise ValueError(
                "teachers.run_on = 'clients' needs a scorer that can be sent, and "
                f"{scorer.name!r} has no fit_arrays and from_arrays: add them, or set "
                "run_on = 'server'"
            )
        else:
            fit = scorer.fit_arrays(*data)
            fitted = scorer.from_arrays(*fit)
        return Cohort(releases, fitted, fit, transformed(fitted, self.embedded[label]))


@dataclass(frozen=True)
class Cohort:
    """The releases of a prototype's clients, and what is fitted to them: the same from
    round to round.
    """

    releases: list[Release]
    fitted: Fitted
    fit: Fit
    rows: Features  # φ(D_distill) after `Fitted.transform`


def cap_precision(releases: Sequence[Release]) -> list[Release]:
    """Cap the precision of releases: the server treats none as more exact than the
    median, whatever its stated budget.

    A large ε costs a liar nothing, and where releases are pooled by their noise all
    others would drown against it.
    """
    noise = np.array([release.scale / release.sensitivity for release in releases])
    least = float(np.median(noise))
    return [
        replace(release, scale=least * release.sensitivity)
        if own < (1 - 1e-6) * least
        else release
        for release, own in zip(releases, noise, strict=True)
    ]


class TeacherWeights:
    """Eq. 4's weights s_i(x) of one round's teachers over D_distill.

    Their peak and their sum are taken over blocks of examples, all teachers at once;
    then a teacher's weights are computed when they are asked for. So memory does not
    grow with teachers, and their order changes no bit.
    """

    def __init__(
        self,
        config: TeachersConfig,
        fitted: Mapping[str, Fitted],
        rows: Mapping[str, Features],
        label_of: LabelOf,
        teachers: Sequence[str],
        fits: Mapping[str, Fit] | None = None,
    ) -> None:
        self._kind, self._fitted, self._rows, self._label_of = (
            config.weights,
            fitted,
            rows,
            label_of,
        )
        self.teachers = frozenset(teachers)
        if not teachers:
            return
        cohorts: dict[str, list[str]] = {}
        for client in teachers:
            cohorts.setdefault(label_of(client), []).append(client)
        # a cap below the even share means equal shares
        self._share = max(config.max_share, 1 / len(teachers))
        functions = {
            label: scaled_odds(fitted[label], cohort, self._kind)
            for label, cohort in cohorts.items()
        }
        size = len(next(iter(rows.values())))
        self._peak, self._ceiling = np.empty(size), np.empty(size)
        for block in blocks(size, ENTRIES // len(teachers)):
            odds = [
                function(rows[label][block]) for label, function in functions.items()
            ]
            self._peak[block] = np.max(
                [np.log(scaled.max(axis=0)) + shift for scaled, shift in odds], axis=0
            )
            weights = [
                block_weights(scaled, shift, self._peak[block], self._kind)
                for scaled, shift in odds
            ]
            self._ceiling[block] = share_cap(
                np.concatenate(weights) if len(weights) > 1 else weights[0], self._share
            )
        self._unit = np.minimum(self._ceiling, 1.0) if self._share < 1 else np.ones(1)
        # of the weight 1
        self._shares = (self._unit * self._share / self._ceiling / size).astype(
            np.float32
        )
        self._scored = {
            label: Scored.of(fitted[label], rows[label], self._peak, self._kind)
            for label in cohorts
        }
        self._own = {
            client: arrays
            for _, own in (fits or {}).values()
            for client, arrays in own.items()
        }
        self._shared = {
            label: {**shared, "peak": self._peak}
            for label, (shared, _) in (fits or {}).items()
        }

    def log_odds(self, client: str) -> Vector:
        """log D_i(x)/D⁻(x) over D_distill."""
        label = self._label_of(client)
        return log_odds(self._fitted[label], client, self._rows[label])

    def of(self, client: str) -> Features:
        """Return a client's weights, in units of the largest weight or of its cap: a
        common factor does not matter.
        """
        weights = self._scored[self._label_of(client)].weights(client)
        return weights if self._share == 1 else np.minimum(weights / self._unit, 1.0)

    def share(self, weights: Features) -> float:
        """The share of such weights among all teachers', on average over D_distill."""
        return float(weights @ self._shares)

    def broadcast(self, client: str) -> tuple[Arrays, Arrays]:
        """(for all clients of a prototype, for this one): what `client_weights`
        computes the same weights from.
        """
        return self._shared[self._label_of(client)], self._own[client]

    def check(self, client: str, weights: Features) -> None:
        """Refuse weights that a client has not computed from its release, on a sample
        of rows that it cannot know.
        """
        some, label = (
            np.random.default_rng().integers(len(weights), size=_SAMPLE),
            self._label_of(client),
        )
        sample = Scored.of(
            self._fitted[label], self._rows[label][some], self._peak[some], self._kind
        )
        if not np.allclose(weights[some], sample.weights(client), rtol=0.02, atol=1e-3):
            raise ValueError("its teacher weights are not those of its release")


def client_weights(
    scorer: PortableScorer, kind: str, embedded: Features, shared: Arrays, own: Arrays
) -> Features:
    """Compute a client's weights from what it is sent: `TeacherWeights.of` without a
    limit on a teacher's share.

    Odds are relative to the peak of the round's teachers, which the server broadcasts:
    one number per example.
    """
    fitted = scorer.from_arrays(shared, {"": own})
    return Scored.of(
        fitted, transformed(fitted, embedded), shared["peak"], kind
    ).weights("")


def transformed(fitted: Fitted, embedded: Features) -> Features:
    return (
        embedded
        if fitted.transform is None
        else transform_rows(Records(embedded), fitted.transform)
    )


def share_cap(weights: Features, share: float) -> Vector:
    """The height t at which to cut weights so that none has more than a share c of
    their sum, (n, B) → (B,).

    Then t = c Σ min(s, t). If the k largest are cut and the others add up to r_k, that
    is t = c (k t + r_k), or t = r_k / (1/c − k). Any other k gives more, as k t + r_k ≥
    Σ min(s, t) whichever are cut: the least of them is t.
    """
    # the most teachers that may be cut: fewer than 1/c
    most = math.ceil(1 / share - 1e-9) - 1
    kept = len(weights) - most
    ranked = np.partition(weights, kept - 1, axis=0) if most else weights
    largest = np.sort(ranked[kept:], axis=0)
    sums = ranked[:kept].sum(axis=0, dtype=np.float64) + np.concatenate(
        [np.zeros((1, weights.shape[1])), np.cumsum(largest, axis=0)]
    )
    # r_k for k = most, …, 0
    return np.asarray(
        (sums / (1 / share - np.arange(most, -1, -1))[:, None]).min(axis=0)
    )


def teacher_weights(log_odds: Vector, peak: Vector, kind: str) -> Vector:
    """s_i(x) in (0, 1] from a client's log-odds (METHOD: certainty = s, odds = s / (1 −
    s)).

    Eq. 4 divides by Σ s, so a common factor cancels: odds are taken relative to
    `peak(x)`, the largest of the round's teachers, which keeps them in range whatever
    the scorer says.
    """
    raw = (
        expit(log_odds)
        if kind == "certainty"
        else np.exp(np.minimum(log_odds - peak, 0.0))
    )
    return np.asarray(np.maximum(raw, MIN_WEIGHT))


@dataclass(frozen=True, eq=False)
class Scored:
    """One prototype's rows, ready for the weights of any of its clients."""

    fitted: Fitted
    # after `Fitted.transform`; of mixtures e^{row − peak}, or e^row for certainties,
    # (m, N), float32
    rows: Features
    peak: Vector
    kind: str

    @classmethod
    def of(cls, fitted: Fitted, rows: Features, peak: Vector, kind: str) -> Scored:
        if fitted.mixtures is None:
            return cls(fitted, rows, peak, kind)
        shift = peak if kind == "odds" else np.zeros_like(peak)
        ratios = temporary_array((rows.shape[1], len(rows)), np.float32)
        for block in blocks(len(rows), ENTRIES // rows.shape[1]):
            ratios[:, block] = exp_rows(rows[block], shift[block])
        return cls(fitted, ratios, peak, kind)

    def weights(self, client: str) -> Features:
        """`teacher_weights` of this client's log-odds; of a mixture, a product of its
        coefficients with the rows.
        """
        if self.fitted.mixtures is None:
            return teacher_weights(
                log_odds(self.fitted, client, self.rows), self.peak, self.kind
            )
        odds = self.fitted.mixtures[client].astype(np.float32) @ self.rows
        if self.kind == "certainty":
            odds /= 1 + odds
        return np.minimum(np.maximum(odds, MIN_WEIGHT, out=odds), 1.0, out=odds)


def scaled_odds(
    fitted: Fitted, clients: Sequence[str], kind: str
) -> Callable[[Features], tuple[Features, Vector]]:
    """Rows, (B, m) → (odds (n, B), shift (B,)): the clients' odds are odds·e^shift, the
    largest neither 0 nor ∞.

    Certainties need odds as they are: their shift is 0.
    """
    relative = kind == "odds"

    def plain(rows: Features) -> tuple[Features, Vector]:
        logs = np.stack([fitted.log_odds[client](rows) for client in clients])
        shift = logs.max(axis=0) if relative else np.zeros(len(rows))
        return np.exp(np.clip(logs - shift, -_RANGE, _RANGE)), shift

    if fitted.mixtures is None:
        return plain
    mixtures = np.stack([fitted.mixtures[client] for client in clients]).astype(
        np.float32
    )
    used, buffer = mixtures.any(axis=0), np.empty((len(mixtures), 0), np.float32)

    def product(rows: Features) -> tuple[Features, Vector]:
        nonlocal buffer
        if buffer.shape[1] != len(rows):
            buffer = np.empty((len(mixtures), len(rows)), np.float32)
        shift = (
            rows[:, used].max(axis=1).astype(np.float64)
            if relative
            else np.zeros(len(rows))
        )
        return np.matmul(mixtures, exp_rows(rows, shift), out=buffer), shift

    return product


def block_weights(odds: Features, shift: Vector, peak: Vector, kind: str) -> Features:
    """`teacher_weights` of `scaled_odds`, in place."""
    if kind == "odds":
        odds *= np.exp(shift - peak).astype(odds.dtype)
    else:
        odds /= 1 + odds
    return np.maximum(odds, MIN_WEIGHT, out=odds)


def exp_rows(rows: Features, shift: Vector) -> Features:
    """e^{row − shift}, (N, m) → (m, N), float32. What is cut off has no coefficient, or
    the least weight.
    """
    return np.exp(np.clip(rows.T - shift, -_RANGE, _RANGE)).astype(
        np.float32, order="C"
    )


def log_odds(fitted: Fitted, client: str, rows: Features) -> Vector:
    """Compute one client's log-odds on rows after `Fitted.transform`, block by
    block.
    """
    function = fitted.log_odds[client]
    return np.concatenate(
        [function(rows[block]) for block in blocks(len(rows), _BLOCK)]
    )


def blocks(count: int, size: int) -> Iterator[slice]:
    stride = max(1, size)
    return (slice(start, start + stride) for start in range(0, count, stride))
