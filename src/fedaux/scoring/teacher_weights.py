"""The server's side of P2: from releases of a few numbers to each teacher's weight on
each public example.

Where clients' odds are mixtures of density ratios that they share (`Fitted.mixtures`),
weights are a matrix product in single precision, the precision of the ratios
themselves, otherwise each client's log-odds function is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import expit

from fedaux.config.distillation import TeachersConfig
from fedaux.core.arrays import Arrays, Vector
from fedaux.core.io import temporary_array
from fedaux.data.records import Indices, Records
from fedaux.messages import Release
from fedaux.models.inference import transform_rows
from fedaux.scoring.base import (
    Features,
    Fit,
    Fitted,
    LogOdds,
    PortableScorer,
    PublicScorer,
    Reference,
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
        by_prototype: dict[str, list[Release]] = {}
        # independent of arrival order: sums of reals depend on their order
        for client in sorted(releases):
            label = self.label_of(client)
            by_prototype.setdefault(label, []).append(releases[client])
        cohorts = {
            label: self._cohort(label, made) for label, made in by_prototype.items()
        }
        return TeacherWeights(
            self.teachers,
            {label: cohort.fitted for label, cohort in cohorts.items()},
            {label: cohort.on(part) for label, cohort in cohorts.items()},
            self.label_of,
            [client for client in asked if client in releases],
            {label: cohort.fit for label, cohort in cohorts.items()},
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
        largest, which no one knows.
        """
        fits = {}
        for label in {self.label_of(client) for client in asked} & set(pooled):
            cohort = self._cohort(label, [pooled[label]])
            name = pooled[label].client
            shared, own = cohort.fit
            peak = log_odds(cohort.fitted, name, cohort.on(part))
            fits[label] = ({**shared, "peak": peak}, own[name])
        labels = {client: self.label_of(client) for client in asked}
        labels = {client: label for client, label in labels.items() if label in fits}
        return PooledWeights(frozenset(labels), fits, labels)

    def _cohort(self, label: str, releases: list[Release]) -> Cohort:
        """Return what is fitted to these releases, from the last round if they are the
        same.
        """
        cohort = self._cohorts.get(label)
        if cohort is None or cohort.releases != releases:  # by identity
            cohort = self._fit(label, releases)
            self._cohorts[label] = cohort
        return cohort

    def _fit(self, label: str, releases: list[Release]) -> Cohort:
        """Fit the scorer to releases, also as arrays if clients compute their own
        weights.
        """
        scorer = self.scorer
        public = self.public[label]
        reference = self.reference[label]
        capped = cap_precision(releases)
        fit: Fit = (Arrays(), {})
        if self.teachers.run_on == "server":
            fitted = scorer.fit(public, reference, capped)
        elif isinstance(scorer, PortableScorer):
            fit = scorer.fit_arrays(public, reference, capped)
            fitted = scorer.from_arrays(*fit)
        else:
            raise ValueError(
                "teachers.run_on = 'clients' needs a scorer that can be sent, and "
                f"{scorer.name!r} has no fit_arrays and from_arrays: add them, or set "
                "run_on = 'server'"
            )
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

    def on(self, part: Indices | None) -> Features:
        """Return the rows of a part of D_distill, or all of them."""
        return self.rows if part is None else self.rows[part]


def cap_precision(releases: Sequence[Release]) -> list[Release]:
    """Cap the precision of releases: the server treats none as more exact than the
    median, whatever its stated budget.

    A large ε costs a liar nothing, and where releases are pooled by their noise all
    others would drown against it.
    """
    noise = np.array([release.scale / release.sensitivity for release in releases])
    least = float(np.median(noise))
    capped = []
    for release, stated in zip(releases, noise, strict=True):
        too_exact = stated < (1 - 1e-6) * least
        scale = least * release.sensitivity
        capped.append(replace(release, scale=scale) if too_exact else release)
    return capped


@dataclass(frozen=True, eq=False)
class Normalisation:
    """What the teachers of a round have in common on each example of D_distill, (N,)."""

    peak: Vector  # log of the largest odds
    ceiling: Vector  # the weight at which all are cut (`share_cap`)
    max_share: float  # of a teacher in the sum of their weights; 1: nothing is cut

    @classmethod
    def of(
        cls,
        odds: Mapping[str, ScaledOdds],
        rows: Mapping[str, Features],
        kind: str,
        teachers: int,
        max_share: float,
    ) -> Normalisation:
        """Take peak and ceiling over all teachers at once, block by block of the
        examples.

        Args:
            odds: Of the teachers of each prototype.
            rows: φ(D_distill) of each prototype, after `Fitted.transform`.
            kind: What weights are: odds or certainty.
            teachers: Their number.
            max_share: The largest share of the sum that one of them may have.

        Returns:
            The round's normalisation.
        """
        # a cap below the even share means equal shares
        max_share = max(max_share, 1 / teachers)
        size = len(next(iter(rows.values())))
        peak = np.empty(size)
        ceiling = np.empty(size)
        for block in blocks(size, ENTRIES // teachers):
            scaled = [group.scaled(rows[label][block]) for label, group in odds.items()]
            peaks = [np.log(values.max(axis=0)) + shift for values, shift in scaled]
            peak[block] = np.max(peaks, axis=0)
            weights = [
                block_weights(values, shift, peak[block], kind)
                for values, shift in scaled
            ]
            together = np.concatenate(weights) if len(weights) > 1 else weights[0]
            ceiling[block] = share_cap(together, max_share)
        return cls(peak, ceiling, max_share)

    @cached_property
    def unit(self) -> Vector:
        """The largest weight that a teacher may have, of which weights are stated."""
        return np.minimum(self.ceiling, 1.0) if self.max_share < 1 else np.ones(1)

    @cached_property
    def _share_of_one(self) -> Features:
        """The share that the stated weight 1 has, divided by the number of examples."""
        shares = self.unit * self.max_share / self.ceiling / len(self.peak)
        return np.asarray(shares.astype(np.float32))

    def cut(self, weights: Features) -> Features:
        """Cut weights at the ceiling, and state them in its units."""
        if self.max_share == 1:
            return weights
        return np.minimum(weights / self.unit, 1.0)

    def share(self, weights: Features) -> float:
        """Return the mean share among all teachers' of weights as `cut` states them."""
        return float(weights @ self._share_of_one)


class TeacherWeights:
    """Eq. 4's weights s_i(x) of one round's teachers over D_distill.

    Their peak and their sum are taken over blocks of examples, all teachers at once,
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
        self.teachers = frozenset(teachers)
        self._kind = config.weights
        self._fitted = fitted
        self._rows = rows
        self._label_of = label_of
        self._fits = fits or {}
        if not teachers:
            return
        cohorts: dict[str, list[str]] = {}
        for client in teachers:
            cohorts.setdefault(label_of(client), []).append(client)
        odds = {
            label: scaled_odds(fitted[label], clients, self._kind)
            for label, clients in cohorts.items()
        }
        self._normalisation = Normalisation.of(
            odds, rows, self._kind, len(teachers), config.max_share
        )
        peak = self._normalisation.peak
        self._scored = {
            label: Scored.of(fitted[label], rows[label], peak, self._kind)
            for label in cohorts
        }
        # one mapping for all clients of a prototype: it is serialized once
        self._shared = {
            label: {**shared, "peak": peak} for label, (shared, _) in self._fits.items()
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
        return self._normalisation.cut(weights)

    def share(self, weights: Features) -> float:
        """The share of such weights among all teachers', on average over D_distill."""
        return self._normalisation.share(weights)

    def broadcast(self, client: str) -> tuple[Arrays, Arrays]:
        """(for all clients of a prototype, for this one): what `client_weights`
        computes the same weights from.
        """
        label = self._label_of(client)
        _, own = self._fits[label]
        return self._shared[label], own[client]

    def check(self, client: str, weights: Features) -> None:
        """Refuse weights that a client has not computed from its release, on a sample
        of rows that it cannot know.
        """
        label = self._label_of(client)
        sampled = np.random.default_rng().integers(len(weights), size=_SAMPLE)
        scored = Scored.of(
            self._fitted[label],
            self._rows[label][sampled],
            self._normalisation.peak[sampled],
            self._kind,
        )
        expected = scored.weights(client)
        if not np.allclose(weights[sampled], expected, rtol=0.02, atol=1e-3):
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
    rows = transformed(fitted, embedded)
    return Scored.of(fitted, rows, shared["peak"], kind).weights("")


def transformed(fitted: Fitted, embedded: Features) -> Features:
    if fitted.transform is None:
        return embedded
    return transform_rows(Records(embedded), fitted.transform)


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
    none = np.zeros((1, weights.shape[1]))
    added = np.concatenate([none, np.cumsum(largest, axis=0)])
    # r_k for k = most, …, 0
    sums = ranked[:kept].sum(axis=0, dtype=np.float64) + added
    heights = sums / (1 / share - np.arange(most, -1, -1))[:, None]
    return np.asarray(heights.min(axis=0))


def teacher_weights(log_odds: Vector, peak: Vector, kind: str) -> Vector:
    """s_i(x) in (0, 1] from a client's log-odds (METHOD: certainty = s, odds = s / (1 −
    s)).

    Eq. 4 divides by Σ s, so a common factor cancels: odds are taken relative to
    `peak(x)`, the largest of the round's teachers, which keeps them in range whatever
    the scorer says.
    """
    if kind == "certainty":
        return np.asarray(np.maximum(expit(log_odds), MIN_WEIGHT))
    odds = np.exp(np.minimum(log_odds - peak, 0.0))
    return np.asarray(np.maximum(odds, MIN_WEIGHT))


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
        """`teacher_weights` of this client's log-odds. Of a mixture, a product of its
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


class ScaledOdds(Protocol):
    """The odds of several clients on a block of examples, in a range that floating
    point has.
    """

    def scaled(self, rows: Features) -> tuple[Features, Vector]:
        """Rows, (B, m) → (odds (n, B), shift (B,)): the clients' odds are odds·e^shift,
        the largest neither 0 nor ∞.

        Certainties need odds as they are: their shift is 0.
        """
        ...


@dataclass(frozen=True)
class OddsByClient:
    """Odds from each client's own function."""

    functions: Sequence[LogOdds]
    relative: bool  # to the largest; False: as they are

    def scaled(self, rows: Features) -> tuple[Features, Vector]:
        logs = np.stack([log_odds(rows) for log_odds in self.functions])
        shift = logs.max(axis=0) if self.relative else np.zeros(len(rows))
        return np.exp(np.clip(logs - shift, -_RANGE, _RANGE)), shift


class OddsOfMixtures:
    """Odds of all clients as one matrix product, into the same memory for every
    block.
    """

    def __init__(self, mixtures: Sequence[Vector], relative: bool) -> None:
        self._mixtures = np.stack(mixtures).astype(np.float32)
        self._relative = relative
        # a class that no client has must not set the scale
        self._present = self._mixtures.any(axis=0)
        self._product = np.empty((len(mixtures), 0), np.float32)

    def scaled(self, rows: Features) -> tuple[Features, Vector]:
        if self._product.shape[1] != len(rows):
            self._product = np.empty((len(self._mixtures), len(rows)), np.float32)
        shift = np.zeros(len(rows))
        if self._relative:
            shift = rows[:, self._present].max(axis=1).astype(np.float64)
        ratios = exp_rows(rows, shift)
        return np.matmul(self._mixtures, ratios, out=self._product), shift


def scaled_odds(fitted: Fitted, clients: Sequence[str], kind: str) -> ScaledOdds:
    """Return the odds of these clients, as a matrix product where they are mixtures."""
    relative = kind == "odds"
    if fitted.mixtures is None:
        return OddsByClient([fitted.log_odds[client] for client in clients], relative)
    return OddsOfMixtures([fitted.mixtures[client] for client in clients], relative)


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
