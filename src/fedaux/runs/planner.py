"""Predicts from public data alone how much of the scores' signal survives the noise.

The public rows are clustered into as many pseudo-classes as there are classes, and
given to pseudo-clients with one class each and the planned number of records. These
release and are weighted by the code of a real run. The result is the share of the
teachers' weight that goes to clients of the right class, with and without noise. No
private record is read, so planning costs no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedaux.client.summaries import summarise
from fedaux.config.sections import FederationConfig, PrivacyConfig
from fedaux.core.arrays import Arrays, Vector
from fedaux.privacy.mechanism import GRID, Summary, release, release_multiplier
from fedaux.runs.look_plan import LookPlan, plan_look
from fedaux.scoring.base import Features, PublicScorer, Reference

_NO_NOISE = 1e3  # an ε at which noise is negligible
_MAX_ROWS = 4000  # of D⁻, to weight teachers on


@dataclass(frozen=True)
class Plan:
    """A prediction. `kept` is the share, 0 to 1, of the gain in right weight over equal
    weights that survives noise.
    """

    epsilon: float
    records: int
    sigma: float  # of the noise on each coordinate of a client's mean
    signal: float  # standard deviation of a coordinate of the pseudo-clients' means
    right: float  # share of a row's weight that goes to clients of its class
    right_without_noise: float
    even: float  # the same with equal weights
    teachers: float  # effective number of teachers on a row

    @property
    def kept(self) -> float:
        return max(
            0.0,
            (self.right - self.even) / max(1e-9, self.right_without_noise - self.even),
        )


@dataclass(frozen=True, eq=False)
class Planner:
    """Predicts from public features of D⁻. `group` is the pseudo-class of each row."""

    scorer: PublicScorer
    public: Arrays
    features: Features
    group: NDArray[np.int64]
    clients: int
    privacy: PrivacyConfig
    classes: int
    federation: FederationConfig  # how many sites a secure sum needs

    @classmethod
    def of(
        cls,
        scorer: PublicScorer,
        features: Features,
        clients: int,
        classes: int,
        privacy: PrivacyConfig,
        federation: FederationConfig,
    ) -> Planner:
        from sklearn.cluster import KMeans

        groups = min(clients, classes)
        if len(features) < 2 * groups:
            raise ValueError(
                f"Cannot plan: {len(features)} public rows cannot represent {groups} "
                "classes. Give more of them."
            )
        public = scorer.publish(features)
        group = KMeans(groups, n_init=1, random_state=0).fit_predict(
            scorer.embed(public, features)
        )
        # seeded noise: nothing here is private
        return cls(
            scorer,
            public,
            features,
            np.asarray(group, np.int64),
            clients,
            replace(privacy, unsafe_seed=0),
            classes,
            federation,
        )

    def plan(self, epsilon: float, records: int, draws: int = 3) -> Plan:
        # of a sum of φ, whichever scorer sums them
        sensitivity = self._summaries(records)[0].sensitivity / GRID
        ideal = self._weights(_NO_NOISE, records, 0)
        noisy = [self._weights(epsilon, records, draw) for draw in range(draws)]
        rows, group = self._rows
        means = np.stack(
            [rows[group == index].mean(axis=0) for index in range(self.groups)]
        )
        return Plan(
            epsilon=epsilon,
            records=records,
            sigma=self._multiplier(epsilon, records) * sensitivity / records,
            signal=float(means.std(axis=0).mean()),
            right=float(np.mean([self._right(weights) for weights in noisy])),
            right_without_noise=self._right(ideal),
            even=self._right(np.full_like(ideal, 1 / self.clients)),
            teachers=float(
                np.mean(
                    [(1 / np.square(weights).sum(axis=0)).mean() for weights in noisy]
                )
            ),
        )

    def look(self, records: int, epsilon: float, look_epsilon: float) -> LookPlan:
        """Predict a look at so many held-out records, next to a release at ε."""
        privacy = replace(self.privacy, epsilon=epsilon, look_epsilon=look_epsilon)
        release_size = self.scorer.size(self.public)
        return plan_look(
            records,
            self.clients,
            self.classes,
            privacy,
            self.federation,
            release_size,
        )

    @property
    def groups(self) -> int:
        return int(self.group.max()) + 1

    def epsilon_for(self, kept: float, records: int) -> float:
        """The smallest ε, to about 5 %, that keeps this share at this number of
        records, or ∞ if 100 does not.
        """
        low, high = 1e-3, 100.0
        if self.plan(high, records).kept < kept:
            return np.inf
        while high / low > 1.05:
            middle = float(np.sqrt(low * high))
            low, high = (
                (low, middle)
                if self.plan(middle, records).kept >= kept
                else (middle, high)
            )
        return high

    def records_for(self, kept: float, epsilon: float, records: int) -> int:
        """Records a client needs at this ε, 0 if none suffice: noise on a mean is ∝
        multiplier(ε)/records.
        """
        sufficient = self.epsilon_for(kept, records)
        if not np.isfinite(sufficient):
            return 0
        return int(
            np.ceil(
                records
                * self._multiplier(epsilon, records)
                / self._multiplier(sufficient, records)
            )
        )

    def curve(self, epsilons: Sequence[float], records: int) -> list[float]:
        return [self.plan(epsilon, records).kept for epsilon in epsilons]

    @cached_property
    def _rows(self) -> tuple[Vector, NDArray[np.int64]]:
        """(φ, group) of the rows that teachers are weighted on."""
        features, group = self.features[:_MAX_ROWS], self.group[:_MAX_ROWS]
        return np.asarray(self.scorer.embed(self.public, features), np.float64), group

    @cached_property
    def _reference(self) -> Reference:
        return Reference(
            np.asarray(self.scorer.embed(self.public, self.features), np.float64)
        )

    @lru_cache(maxsize=8)  # noqa: B019 - a planner lives as long as its command
    def _summaries(self, records: int) -> list[Summary]:
        """What the pseudo-clients would release: `records` public rows of one group
        each, drawn with replacement.
        """
        rng, summaries = np.random.default_rng(0), []
        for client in range(self.clients):
            group = client % self.groups
            rows = self.features[
                rng.choice(np.flatnonzero(self.group == group), records)
            ]
            labels, shares = np.full(records, group), np.ones(records)
            summaries.append(
                summarise(
                    self.scorer,
                    self.public,
                    rows,
                    labels,
                    self.privacy.adjacency,
                    records,
                    shares,
                )
            )
        return summaries

    def _multiplier(self, epsilon: float, records: int) -> float:
        privacy, size = self.privacy, len(self._summaries(records)[0].values)
        return release_multiplier(
            epsilon, privacy.delta, privacy.calibration, privacy.adjacency, size
        )

    def _weights(self, epsilon: float, records: int, draw: int) -> Vector:
        """(clients, rows), adding up to 1 over the clients: the odds as FedAUX uses
        them.
        """
        privacy = replace(self.privacy, epsilon=epsilon, unsafe_seed=draw)
        summaries = self._summaries(records)
        releases = [
            release(summary, f"client {i}", privacy)
            for i, summary in enumerate(summaries)
        ]
        fitted = self.scorer.fit(self.public, self._reference, releases)
        rows = (
            self._rows[0]
            if fitted.transform is None
            else fitted.transform(self._rows[0])
        )
        log_odds = np.stack([fitted.log_odds[r.client](rows) for r in releases])
        return np.asarray(softmax(log_odds, axis=0))

    def _right(self, weights: Vector) -> float:
        """Share of the weight on clients of a row's own group."""
        own = (np.arange(self.clients) % self.groups)[:, None] == self._rows[1]
        return float((weights * own).sum(axis=0).mean())
