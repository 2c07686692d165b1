"""Before any budget is spent: will the scores carry a signal? Simulated on public data alone.

The public rows are grouped into as many pseudo-clients as there will be clients; each releases the mean of its group as
a client with the planned number of records would. How much of the teachers' weight then lands on the right group, and
how much did the noise take away? No private record is read, so planning costs nothing and can be repeated at will.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaux.privacy.bounded import REACH
from fedaux.privacy.gaussian import multiplier

Vector = NDArray[np.float64]
# (release, σ of its noise, records) → log-odds of rows; the server's own post-processing
Fit = Callable[[Vector, float, int], Callable[[Vector], Vector]]


@dataclass(frozen=True)
class Plan:
    """`kept`: what is left of the weight that a release without noise would bring to the right teachers, 0 to 1."""

    epsilon: float
    records: int
    sigma: float  # of the noise on each coordinate of the mean
    signal: float  # standard deviation of a coordinate of the pseudo-clients' means
    right: float  # share of a row's weight that goes to its own group
    right_without_noise: float
    teachers: float  # effective number of teachers on a row
    clients: int

    @property
    def kept(self) -> float:
        even = 1 / self.clients
        return max(0.0, (self.right - even) / max(1e-9, self.right_without_noise - even))


@dataclass(frozen=True, eq=False)
class Planner:
    """`rows` are φ(D⁻), `group` says to which pseudo-client each belongs."""

    rows: Vector
    group: NDArray[np.int64]
    fit: Fit
    delta: float
    adjacency: str
    certificate: str

    @classmethod
    def of(cls, rows: Vector, clients: int, fit: Fit, delta: float, adjacency: str, certificate: str) -> Planner:
        from sklearn.cluster import KMeans

        if len(rows) < 2 * clients:
            raise ValueError(
                f"{len(rows)} public rows cannot stand for {clients} clients; plan with fewer or give more"
            )
        group = KMeans(clients, n_init=1, random_state=0).fit_predict(rows)
        return cls(rows, np.asarray(group, np.int64), fit, delta, adjacency, certificate)

    def plan(self, epsilon: float, records: int, draws: int = 3) -> Plan:
        sigma = multiplier(epsilon, self.delta, self.certificate) * REACH[self.adjacency] / records
        means = np.stack([self.rows[self.group == one].mean(axis=0) for one in range(self.clients)])
        rng = np.random.default_rng(0)
        noisy = [self._weights(means + rng.normal(0, sigma, means.shape), sigma, records) for _ in range(draws)]
        own = np.arange(len(self.rows)), self.group
        return Plan(
            epsilon=epsilon,
            records=records,
            sigma=sigma,
            signal=float(means.std(axis=0).mean()),
            right=float(np.mean([weights[own].mean() for weights in noisy])),
            right_without_noise=float(self._weights(means, 0.0, records)[own].mean()),
            teachers=float(np.mean([(1 / np.square(weights).sum(axis=1)).mean() for weights in noisy])),
            clients=self.clients,
        )

    @property
    def clients(self) -> int:
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
        ratio = multiplier(epsilon, self.delta, self.certificate) / multiplier(enough, self.delta, self.certificate)
        return int(np.ceil(records * ratio))

    def curve(self, epsilons: Sequence[float], records: int) -> list[float]:
        return [self.plan(epsilon, records).kept for epsilon in epsilons]

    def _weights(self, releases: Vector, sigma: float, records: int) -> Vector:
        """(rows, clients), each row summing to 1: the odds as FedAUX uses them."""
        scores = np.stack([self.fit(one, sigma, records)(self.rows) for one in releases], axis=1)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))
