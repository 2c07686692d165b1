"""Progress events as text: one line for a log, or the parts of a bar."""

from __future__ import annotations

from typing import NamedTuple

from fedaux.core.progress import (
    AggregationStarted,
    AuditProgress,
    FeaturesProgress,
    Notice,
    OrdersSent,
    PretrainingProgress,
    ProgressEvent,
    ReleasesProgress,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesConnected,
    SumsProgress,
    SweepProgress,
    SweepRunProgress,
    TrainingProgress,
    WorkProgress,
)
from fedaux.core.results import RoundResult
from fedaux.report.terminal import plural


class Step(NamedTuple):
    """How far some work is; `total` 0 is work that is not counted."""

    task: str
    done: int
    total: int
    note: str


def print_progress(event: ProgressEvent) -> None:
    """For the log of a server, without what other lines sum up."""
    answered = isinstance(event, ReplyReceived) and event.failure is None
    if not answered and not isinstance(event, OrdersSent | WorkProgress):
        print(describe(event), flush=True)


def describe(event: ProgressEvent) -> str:
    """One line, such as `round 3/10: accuracy 0.812, 10 clients`."""
    if isinstance(event, SweepRunProgress):
        return f"{event.run}: {describe(event.event)}"
    if isinstance(event, RunStarted):
        how = f"continues after round {len(event.history)} of {event.rounds}" if event.history else "starts"
        return f"{event.method} {how}, {event.setting}"
    if isinstance(event, Notice):
        return event.text
    task, done, total, note = step(event)
    if isinstance(event, RoundFinished):
        return f"round {done}/{total}: {note}"
    return ", ".join(part for part in (f"{task}: {done}/{total}" if total else task, note) if part)


def step(event: ProgressEvent) -> Step:
    match event:
        case SweepRunProgress():
            return step(event.event)
        case SweepProgress():
            ended = "failed" if event.accuracy is None else f"accuracy {event.accuracy:.3f}"
            return Step(event.unit, event.done, event.total, f"{event.run}: {ended}" if event.run else "")
        case RunStarted():
            return Step("rounds", len(event.history), event.rounds, "")
        case RoundFinished():
            return Step("rounds", event.result.round, event.rounds, _round_note(event.result))
        case PretrainingProgress():
            return Step(f"pre-training {event.prototype}", event.epoch, event.epochs, _pretraining_note(event))
        case WorkProgress():
            return Step(event.task, event.done, event.total, "")
        case FeaturesProgress():
            return Step(f"features of {event.prototype}", event.done, event.total, "")
        case ReleasesProgress():
            parts = (_failed(event.failed), _extractor(event), f"public map {_megabytes(event.public_bytes)}")
            return Step("releases", event.done, event.total, ", ".join(filter(None, parts)))
        case SumsProgress():
            note = ", ".join(filter(None, (_failed(event.failed), _extractor(event))))
            return Step("sums of features", event.done, event.total, note)
        case TrainingProgress():
            return Step(f"round {event.round}", event.done, event.total, _failed(event.failed) or "training")
        case SitesConnected():
            return Step("sites connected", event.done, event.total, "")
        case OrdersSent():
            return Step(
                f"{event.task} sent", 0, 0, f"{plural(len(event.clients), 'client')}, {_megabytes(event.bytes)}"
            )
        case ReplyReceived():
            note = f"{event.task} failed, {event.failure.reason}" if event.failure else f"{event.task} received"
            return Step(event.client, 0, 0, note if event.failure else f"{note}, {_megabytes(event.bytes)}")
        case AggregationStarted():
            return Step(f"round {event.round}", 0, 0, "averaging and distilling")
        case AuditProgress():
            return Step("attacks", event.number, event.total, event.attack)
        case Notice():
            return Step(event.text, 0, 0, "")
    raise TypeError(f"unknown progress event {event!r}")


def _round_note(result: RoundResult) -> str:
    from fedaux.privacy.accounting import round_up  # with SciPy, which a line about files does not need

    balanced = result.mean_metric("balanced_accuracy")
    parts = [f"accuracy {result.mean_accuracy:.3f}", *([f"balanced {balanced:.3f}"] if balanced is not None else [])]
    parts += [plural(len(result.client_metrics), "client")]
    parts += [_failed(len(result.failures))] if result.failures else []
    parts += [f"{result.effective_teachers:.1f} effective teachers"] if result.effective_teachers else []
    parts += [f"ε {round_up(result.epsilon)}"] if result.epsilon else []
    return ", ".join(parts)


def _pretraining_note(event: PretrainingProgress) -> str:
    if event.loss is None or event.rank is None or event.views_per_second is None:
        return {"cache": "from the cache", "published": "published weights"}.get(event.source, "")
    return f"loss {event.loss:.3f}, rank {event.rank:.1f}, {event.views_per_second:,.0f} views/s"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def _extractor(event: ReleasesProgress | SumsProgress) -> str:
    return f"extractor {_megabytes(event.extractor_bytes)}" if event.extractor_bytes else "extractor not sent"


def _failed(count: int) -> str:
    return f"{count} failed" if count else ""
