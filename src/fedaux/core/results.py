"""Results of a finished round, as frozen types. The history of a run is a tuple of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from fedaux.core.failures import Failure


@dataclass(frozen=True)
class ClientMetrics:
    """Metrics of a client whose update was used. Private training does not report loss
    and seconds. They are 0.
    """

    records: int
    loss: float
    seconds: float
    # of all teachers' weight, mean over D_distill; None without weights
    teacher_share: float | None = None


@dataclass(frozen=True)
class PrivateTraining:
    """DP-SGD of one client in one round: noise multiplier, sample rate and steps."""

    noise: float
    rate: float
    steps: int


@dataclass(frozen=True)
class RoundResult:
    """The metrics of one round.

    Only the last round of a run keeps its confusion matrices and calibration curves: a
    thousand classes would fill the history.

    Attributes:
        round: The number of the round, from 1.
        accuracy: Test accuracy, by prototype, or {} if the server has no test data.
        client_metrics: Metrics of the clients whose updates were used, by client.
        failures: Clients that did not contribute, with the reasons.
        private_training: Noise, sample rate and steps of clients that train with
            DP-SGD, by client.
        unprotected_models: Number of updates that came without noise.
        epsilon: The largest total ε that any client has reported so far, or None without
            any, or with seeded noise.
        distill_loss: Mean loss of the distillation, or None without one.
        effective_teachers: Effective number of teachers per public example, or None
            without distillation.
        teachers: Number of teachers: clients, standing teachers and FedBE's draws, or None
            without distillation.
        update_norms: Median over clients of ‖θ_i − θ‖/√steps, by prototype and array.
        bytes_sent: Bytes that the server sent.
        bytes_received: Bytes that the server received.
        seconds: Duration of each phase.
        metrics: Further test metrics by prototype, as in `Evaluation.summary`.
        unknown_classes: Of a private head, the classes whose records noise alone would
            explain, by prototype: each with its number, the noisy count of its records,
            and the standard deviation of that count.
        confusion: Counts of true class (rows) by predicted class, by prototype, or None
            before the last round.
        calibration: Of probabilities, by prototype, the rows of
            `Calibration.to_rows`, or None before the last round.
        start: Of round 1 only, test accuracy of the models that it started from, by
            prototype, or {} if nothing is trained.
    """

    round: int
    accuracy: dict[str, float]
    client_metrics: dict[str, ClientMetrics]
    failures: tuple[Failure, ...] = ()
    private_training: dict[str, PrivateTraining] = field(default_factory=dict)
    unprotected_models: int = 0
    epsilon: float | None = None
    distill_loss: float | None = None
    effective_teachers: float | None = None
    teachers: int | None = None
    update_norms: dict[str, dict[str, float]] = field(default_factory=dict)
    bytes_sent: int = 0
    bytes_received: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    unknown_classes: dict[str, list[tuple[int, float, float]]] = field(
        default_factory=dict
    )
    confusion: dict[str, list[list[int]]] | None = None
    calibration: dict[str, list[list[float]]] | None = None
    start: dict[str, float] = field(default_factory=dict)

    @property
    def mean_accuracy(self) -> float | None:
        """Mean test accuracy over the prototypes, or None if the server has no test
        data.
        """
        return fmean(self.accuracy.values()) if self.accuracy else None

    @property
    def mean_start(self) -> float | None:
        """Mean over the prototypes of `start`, or None if it was not measured."""
        return fmean(self.start.values()) if self.start else None

    def mean_metric(self, name: str) -> float | None:
        """Mean of one of `metrics` over the prototypes, or None if it was not measured."""
        values = [metrics[name] for metrics in self.metrics.values() if name in metrics]
        return fmean(values) if values else None

    @property
    def local_loss(self) -> float:
        """Mean training loss over the clients, or 0 if none trained."""
        losses = [metrics.loss for metrics in self.client_metrics.values()]
        return fmean(losses) if losses else 0.0

    @property
    def largest_teacher(self) -> tuple[str, float] | None:
        """The client with the largest share of all teachers' weight, and that share, or
        None without weights.
        """
        shares = [
            (metrics.teacher_share, client)
            for client, metrics in self.client_metrics.items()
            if metrics.teacher_share is not None
        ]
        if not shares:
            return None
        share, client = max(shares)
        return client, share

    def to_dict(self) -> dict[str, Any]:
        """Return a table for JSON, without confusion matrices and calibration curves,
        which would make up most of a history.
        """
        table = dict(vars(self))
        del table["confusion"]
        del table["calibration"]
        table["client_metrics"] = _tables(self.client_metrics)
        table["failures"] = [vars(failure) for failure in self.failures]
        table["private_training"] = _tables(self.private_training)
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> RoundResult:
        fields = dict(table)
        fields["client_metrics"] = {
            client: ClientMetrics(**metrics)
            for client, metrics in table["client_metrics"].items()
        }
        fields["failures"] = tuple(Failure(**item) for item in table["failures"])
        fields["private_training"] = {
            client: PrivateTraining(**training)
            for client, training in table["private_training"].items()
        }
        fields["unknown_classes"] = {
            prototype: [tuple(row) for row in rows]
            for prototype, rows in table.get("unknown_classes", {}).items()
        }
        return cls(**fields)


@dataclass(frozen=True)
class NoisyCounts:
    """Counts in bins, with noise.

    Attributes:
        values: The count of each bin of each tally.
        deviation: Of the noise on each of them, in records; it is that of a tally of
            weight 1 divided by its weight.
        sites: Whose records were counted.
    """

    values: dict[str, list[float]]
    deviation: dict[str, float]
    sites: tuple[str, ...]

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> NoisyCounts:
        return cls(**{**table, "sites": tuple(table["sites"])})


@dataclass(frozen=True)
class SiteTest:
    """What the sites have counted of the records that they hold out.

    Attributes:
        round: The round after which the model was tested.
        classes: The number of classes.
        edges: Where the bins of scores end, as differences of logits.
        epsilon: ε of the look at each site.
        total_before: The largest total ε of any site before the look; None if none had
            answered under noise.
        total: The same after it.
        counts: Of all sites together, by prototype.
        by_site: Of each site; {} in a secure sum.
        failures: Sites that have not answered.
    """

    round: int
    classes: int
    edges: tuple[float, ...]
    epsilon: float
    total_before: float | None
    total: float | None
    counts: dict[str, NoisyCounts]
    by_site: dict[str, NoisyCounts] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites whose records were counted."""
        return tuple(
            sorted({site for counts in self.counts.values() for site in counts.sites})
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a table for JSON."""
        return {
            **vars(self),
            "counts": _tables(self.counts),
            "by_site": _tables(self.by_site),
            "failures": [vars(failure) for failure in self.failures],
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> SiteTest:
        fields = dict(table)
        fields["edges"] = tuple(table["edges"])
        for name in ("counts", "by_site"):
            fields[name] = {
                label: NoisyCounts.from_dict(counts)
                for label, counts in table[name].items()
            }
        fields["failures"] = tuple(Failure(**item) for item in table["failures"])
        return cls(**fields)


def _tables(by_client: Mapping[str, object]) -> dict[str, Any]:
    return {client: vars(metrics) for client, metrics in by_client.items()}
