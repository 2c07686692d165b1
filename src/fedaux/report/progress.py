"""Progress events as text: one line for a log, or the parts of a bar."""

from __future__ import annotations

from typing import NamedTuple

from fedaux.core.progress import (
    Notice,
    OrdersSent,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SweepProgress,
    WorkProgress,
)
from fedaux.core.results import RoundResult
from fedaux.report.terminal import plural

_ASKED_FOR = {"release": "releases", "sums": "sums of features", "sum": "secure sum"}


class Step(NamedTuple):
    """How far some work is; `total` 0 is work that is not counted."""

    task: str
    done: int
    total: int
    note: str


def print_progress(event: ProgressEvent) -> None:
    """For the log of a server, without what happens far below."""
    if not isinstance(event, WorkProgress) or event.phase:
        print(describe(event), flush=True)


def describe(event: ProgressEvent) -> str:
    """One line, such as `round 3/10: accuracy 0.812, 10 clients`."""
    task, done, total, note = step(event)
    if isinstance(event, RunStarted):
        how = f"continues after round {done} of {total}" if done else "starts"
        text = f"{event.method} {how}, {event.setting}"
    elif isinstance(event, RoundFinished):
        text = f"round {done}/{total}: {note}"
    else:
        text = ", ".join(
            filter(None, (f"{task}: {done}/{total}" if total else task, note))
        )
    return f"{event.run}: {text}" if event.run else text


def step(event: ProgressEvent) -> Step:
    """The event as the state of a bar."""
    match event:
        case SweepProgress():
            ended = (
                "failed" if event.accuracy is None else f"accuracy {event.accuracy:.3f}"
            )
            return Step(
                event.unit,
                event.done,
                event.total,
                f"{event.ended}: {ended}" if event.ended else "",
            )
        case RunStarted():
            return Step("rounds", len(event.history), event.rounds, "")
        case RoundFinished():
            return Step(
                "rounds", event.result.round, event.rounds, _round_note(event.result)
            )
        case WorkProgress():
            return Step(event.task, event.done, event.total, event.note)
        case OrdersSent():
            return Step(
                _asked_for(event),
                0,
                len(event.clients),
                f"{event.bytes / 1e6:.2f} MB sent",
            )
        case ReplyReceived():
            answer = (
                f"{event.client} failed: {event.failure.reason}"
                if event.failure
                else f"{event.client} answered"
            )
            return Step(_asked_for(event), event.done, event.total, answer)
        case Notice():
            return Step(event.text, 0, 0, "")
    raise TypeError(f"unknown progress event {event!r}")


def _asked_for(event: OrdersSent | ReplyReceived) -> str:
    return _ASKED_FOR.get(event.task, f"round {event.round}")


def _round_note(result: RoundResult) -> str:
    # with SciPy, which a line about files does not need
    from fedaux.privacy.accounting import round_up

    balanced = result.mean_metric("balanced_accuracy")
    parts = [
        f"accuracy {result.mean_accuracy:.3f}",
        *([f"balanced {balanced:.3f}"] if balanced is not None else []),
    ]
    parts += [plural(len(result.client_metrics), "client")]
    parts += [f"{len(result.failures)} failed"] if result.failures else []
    parts += (
        [f"{result.effective_teachers:.1f} effective teachers"]
        if result.effective_teachers
        else []
    )
    parts += [f"ε {round_up(result.epsilon)}"] if result.epsilon else []
    return ", ".join(parts)
