"""Results of a finished round, as frozen types; the history of a run is a tuple of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from fedaux.core.messages import Failure


@dataclass(frozen=True)
class ClientMetrics:
    """Metrics of a client whose update was used. Private training does not report loss and seconds; they are 0."""

    records: int
    loss: float
    seconds: float
    teacher_share: float | None = None  # of all teachers' weight, mean over D_distill; None where nothing is weighed


@dataclass(frozen=True)
class PrivateTraining:
    """DP-SGD of one client in one round: noise multiplier, sample rate and steps."""

    noise: float
    rate: float
    steps: int


@dataclass(frozen=True)
class RoundResult:
    """Dictionaries have prototype labels as keys, but for those of clients and `seconds`, whose keys are phases.

    update_norms: the median over clients of ‖θ_i − θ‖/√steps, for each array of a model. Only the last round of a run
    keeps its confusion matrices: a thousand classes would fill the history.
    """

    round: int
    accuracy: dict[str, float]
    client_metrics: dict[str, ClientMetrics]
    failures: tuple[Failure, ...] = ()
    private_training: dict[str, PrivateTraining] = field(default_factory=dict)
    unprotected_models: int = 0  # updates that came without noise
    epsilon: float | None = None  # the largest total that any client has reported so far
    distill_loss: float | None = None
    effective_teachers: float | None = None
    teachers: int | None = None  # how many there were: clients, those that stand, and FedBE's draws
    update_norms: dict[str, dict[str, float]] = field(default_factory=dict)
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)  # beside the accuracy: `Evaluation.summary`
    confusion: dict[str, list[list[int]]] | None = None  # true class (rows) by predicted class

    @property
    def mean_accuracy(self) -> float:
        """Over the prototypes."""
        return fmean(self.accuracy.values())

    def mean_metric(self, name: str) -> float | None:
        """Of `metrics`, over the prototypes; None where it was not measured."""
        found = [metrics[name] for metrics in self.metrics.values() if name in metrics]
        return fmean(found) if found else None

    @property
    def local_loss(self) -> float:
        """Over the clients; 0 where none trained."""
        return fmean([metrics.loss for metrics in self.client_metrics.values()] or [0.0])

    @property
    def largest_teacher(self) -> tuple[str, float] | None:
        """(client, its share of all teachers' weight); None where nothing is weighed."""
        metrics = self.client_metrics.items()
        shares = [(item.teacher_share, client) for client, item in metrics if item.teacher_share is not None]
        return max(shares)[::-1] if shares else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without confusion matrices: they would be most of a history."""
        return {
            **{key: value for key, value in vars(self).items() if key != "confusion"},
            "client_metrics": {client: vars(item) for client, item in self.client_metrics.items()},
            "failures": [vars(failure) for failure in self.failures],
            "private_training": {client: vars(item) for client, item in self.private_training.items()},
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> RoundResult:
        nested = {
            "client_metrics": {client: ClientMetrics(**item) for client, item in table["client_metrics"].items()},
            "failures": tuple(Failure(**item) for item in table["failures"]),
            "private_training": {client: PrivateTraining(**item) for client, item in table["private_training"].items()},
        }
        return cls(**{**table, **nested})
