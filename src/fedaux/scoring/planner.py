"""Before any budget is spent: will the scores carry a signal? Simulated on public data alone.

The public rows are grouped into as many pseudo-classes as there are classes, and dealt to pseudo-clients with one class
each and the planned number of records. Those release and are weighed by the very code of a run. How much of the
teachers' weight then lands on clients of the right class, and how much did the noise take away? No private record is
read, so planning costs nothing and can be repeated at will.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedaux.config.schema import PrivacyConfig
from fedaux.core.messages import Arrays
from fedaux.privacy.clipping import GRID
from fedaux.privacy.release import Summary, release, release_multiplier
from fedaux.scoring.base import Features, Reference, Scorer

Vector = NDArray[np.float64]
_NO_NOISE = 1e3  # an ε at which nothing is drowned
_SHOWN = 4000  # rows of D⁻ that are weighed


@dataclass(frozen=True)
class Plan:
    """`kept`: what is left of the weight that a release without noise would bring to the right teachers, 0 to 1."""

    epsilon: float
    records: int
    sigma: float  # of the noise on each coordinate of a client's mean
    signal: float  # standard deviation of a coordinate of the pseudo-clients' means
    right: float  # share of a row's weight that goes to clients of its class
    right_without_noise: float
    even: float  # the same if all teachers counted alike
    teachers: float  # effective number of teachers on a row

    @property
    def kept(self) -> float:
        return max(0.0, (self.right - self.even) / max(1e-9, self.right_without_noise - self.even))


@dataclass(frozen=True, eq=False)
class Planner:
    """`features` are those of D⁻, `group` says to which pseudo-class each belongs."""

    scorer: Scorer
    public: Arrays
    features: Features
    group: NDArray[np.int64]
    clients: int
    privacy: PrivacyConfig

    @classmethod
    def of(cls, scorer: Scorer, features: Features, clients: int, classes: int, privacy: PrivacyConfig) -> Planner:
        from sklearn.cluster import KMeans

        groups = min(clients, classes)
        if len(features) < 2 * groups:
            raise ValueError(f"{len(features)} public rows cannot stand for {groups} classes; give more of them")
        public = scorer.publish(features)
        group = KMeans(groups, n_init=1, random_state=0).fit_predict(scorer.embed(public, features))
        # whatever the noise, it is drawn from a seed: nothing here is private
        return cls(scorer, public, features, np.asarray(group, np.int64), clients, replace(privacy, unsafe_seed=0))

    def plan(self, epsilon: float, records: int, draws: int = 3) -> Plan:
        reach = self._summaries(records)[0].sensitivity / GRID  # of a sum of φ, whichever scorer sums them
        ideal = self._weights(_NO_NOISE, records, 0)
        noisy = [self._weights(epsilon, records, draw) for draw in range(draws)]
        rows, group = self._shown
        means = np.stack([rows[group == one].mean(axis=0) for one in range(self.groups)])
        return Plan(
            epsilon=epsilon,
            records=records,
            sigma=self._multiplier(epsilon, records) * reach / records,
            signal=float(means.std(axis=0).mean()),
            right=float(np.mean([self._right(weights) for weights in noisy])),
            right_without_noise=self._right(ideal),
            even=self._right(np.full_like(ideal, 1 / self.clients)),
            teachers=float(np.mean([(1 / np.square(weights).sum(axis=0)).mean() for weights in noisy])),
        )

    @property
    def groups(self) -> int:
        return int(self.group.max()) + 1

    def epsilon_for(self, kept: float, records: int) -> float:
        """The smallest ε, to about 5 %, that keeps this share at this number of records; ∞ if 100 does not."""
        low, high = 1e-3, 100.0
        if self.plan(high, records).kept < kept:
            return np.inf
        while high / low > 1.05:
            middle = float(np.sqrt(low * high))
            low, high = (low, middle) if self.plan(middle, records).kept >= kept else (middle, high)
        return high

    def records_for(self, kept: float, epsilon: float, records: int) -> int:
        """How many records a client would need at this ε: noise on a mean depends on multiplier(ε)/records alone."""
        enough = self.epsilon_for(kept, records)
        if not np.isfinite(enough):
            return 0
        return int(np.ceil(records * self._multiplier(epsilon, records) / self._multiplier(enough, records)))

    def curve(self, epsilons: Sequence[float], records: int) -> list[float]:
        return [self.plan(epsilon, records).kept for epsilon in epsilons]

    @cached_property
    def _shown(self) -> tuple[Vector, NDArray[np.int64]]:
        """(φ, group) of the rows that are weighed."""
        some = slice(0, _SHOWN)
        return np.asarray(self.scorer.embed(self.public, self.features[some]), np.float64), self.group[some]

    @cached_property
    def _reference(self) -> Reference:
        return Reference(np.asarray(self.scorer.embed(self.public, self.features), np.float64))

    @lru_cache(maxsize=8)  # noqa: B019 - a planner lives as long as its command
    def _summaries(self, records: int) -> list[Summary]:
        """What the pseudo-clients would release: `records` public rows of one group each, drawn with replacement."""
        rng, made = np.random.default_rng(0), []
        for client in range(self.clients):
            group = client % self.groups
            rows = self.features[rng.choice(np.flatnonzero(self.group == group), records)]
            labels, shares = np.full(records, group), np.ones(records)
            made.append(self.scorer.summarise(self.public, rows, labels, self.privacy.adjacency, records, shares))
        return made

    def _multiplier(self, epsilon: float, records: int) -> float:
        privacy, size = self.privacy, len(self._summaries(records)[0].values)
        return release_multiplier(epsilon, privacy.delta, privacy.calibration, privacy.adjacency, size)

    def _weights(self, epsilon: float, records: int, draw: int) -> Vector:
        """(clients, rows), adding up to 1 over the clients: the odds as FedAUX uses them."""
        privacy = replace(self.privacy, epsilon=epsilon, unsafe_seed=draw)
        sent = [release(one, f"client {i}", privacy) for i, one in enumerate(self._summaries(records))]
        fitted = self.scorer.fit(self.public, self._reference, sent)
        rows = self._shown[0]
        seen = rows if fitted.transform is None else fitted.transform(rows)
        scores = np.stack([fitted.odds[one.client](seen) for one in sent])
        return np.asarray(softmax(scores, axis=0))

    def _right(self, weights: Vector) -> float:
        """Share of the weight on clients of a row's own group."""
        own = (np.arange(self.clients) % self.groups)[:, None] == self._shown[1]
        return float((weights * own).sum(axis=0).mean())
