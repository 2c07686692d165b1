"""Progress events as text: one line for a log, or the parts of a bar."""

from __future__ import annotations

from typing import NamedTuple

from fedaux.core import here
from fedaux.core.metrics import format_percent
from fedaux.core.progress import (
    Notice,
    OrdersSent,
    ProgressEvent,
    ReplyReceived,
    RoundFinished,
    RunStarted,
    SitesLooked,
    SweepProgress,
    WorkProgress,
)
from fedaux.core.results import RoundResult
from fedaux.report.terminal import plural

_ASKED_FOR = {
    "release": "releases",
    "sums": "sums of features",
    "sum": "secure sum",
    "look": "noisy counts",
}


class Step(NamedTuple):
    """How far some work is. `total` 0 is work that is not counted."""

    task: str
    done: int
    total: int
    note: str


def print_progress(event: ProgressEvent) -> None:
    """For the log of a server, without what happens far below."""
    far_below = isinstance(event, WorkProgress) and not event.phase
    if not far_below and not is_within_sum(event):
        print(describe(event), flush=True)


def is_within_sum(event: ProgressEvent) -> bool:
    """Whether this is one of the many answers within a secure sum: of four steps, only
    the end of each is worth a line, and every failure.
    """
    if isinstance(event, OrdersSent):
        return event.task == "sum"
    if not isinstance(event, ReplyReceived) or event.task != "sum":
        return False
    return event.failure is None and event.done < event.total


def describe(event: ProgressEvent) -> str:
    """One line, such as `round 3/10: accuracy 81.2 %, 10 clients`."""
    line = here.readable(_line(event))
    return f"{event.run}: {line}" if event.run else line


def _line(event: ProgressEvent) -> str:
    task, done, total, note = step(event)
    if isinstance(event, RunStarted):
        how = f"continues after round {done} of {total}" if done else "starts"
        return f"{event.method} {how}, {event.setting}"
    if isinstance(event, RoundFinished):
        return f"round {done}/{total}: {note}"
    progress = f"{task}: {done}/{total}" if total else task
    return f"{progress}, {note}" if note else progress


def step(event: ProgressEvent) -> Step:
    """The event as the state of a bar."""
    if isinstance(event, SweepProgress):
        return Step(event.unit, event.done, event.total, _sweep_note(event))
    if isinstance(event, RunStarted):
        return Step("rounds", len(event.history), event.rounds, "")
    if isinstance(event, RoundFinished):
        note = _round_note(event.result)
        return Step("rounds", event.result.round, event.rounds, note)
    if isinstance(event, WorkProgress):
        return Step(event.task, event.done, event.total, event.note)
    if isinstance(event, OrdersSent):
        note = f"{event.bytes / 1e6:.2f} MB sent"
        return Step(_asked_for(event), 0, len(event.clients), note)
    if isinstance(event, ReplyReceived):
        note = f"{event.client} answered"
        if event.failure:
            note = f"{event.client} failed: {event.failure.reason}"
        return Step(_asked_for(event), event.done, event.total, note)
    if isinstance(event, SitesLooked):
        count = len(event.accounts)
        return Step(_ASKED_FOR["look"], count, count, f"at ε = {event.epsilon:g} each")
    if isinstance(event, Notice):
        return Step(event.text, 0, 0, "")
    raise TypeError(f"unknown progress event {event!r}")


def _asked_for(event: OrdersSent | ReplyReceived) -> str:
    return _ASKED_FOR.get(event.task, f"round {event.round}")


def _sweep_note(event: SweepProgress) -> str:
    if not event.ended:
        return ""
    if event.accuracy is None:
        return f"{event.ended}: failed"
    return f"{event.ended}: accuracy {format_percent(event.accuracy)}"


def _round_note(result: RoundResult) -> str:
    # with SciPy, which a line about files does not need
    from fedaux.privacy.accounting import round_up

    notes = ["not tested at the server"]
    if result.mean_accuracy is not None:
        notes = [f"accuracy {format_percent(result.mean_accuracy)}"]
    start = result.mean_start
    if start is not None:
        notes.append(f"before it {format_percent(start)}")
    balanced = result.mean_metric("balanced_accuracy")
    if balanced is not None:
        notes.append(f"balanced {format_percent(balanced)}")
    notes.append(plural(len(result.client_metrics), "client"))
    if result.failures:
        notes.append(f"{len(result.failures)} failed")
    if result.effective_teachers:
        notes.append(f"{result.effective_teachers:.1f} effective teachers")
    if result.epsilon:
        notes.append(f"ε {round_up(result.epsilon)}")
    return ", ".join(notes)
