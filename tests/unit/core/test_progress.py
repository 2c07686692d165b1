"""Work is reported to whoever listens, not too often, and its end always."""

import pytest

from fedaux.core import progress as module
from fedaux.core.progress import (
    ProgressEvent,
    ProgressTask,
    WorkProgress,
    no_progress,
    report_to,
    track,
)


def test_items_come_as_they_are_and_their_count_is_heard() -> None:
    known_entries: list[ProgressEvent] = []
    with report_to(known_entries.append):
        assert list(track("abc", "spelling")) == list("abc")
    assert known_entries[0] == WorkProgress("spelling", 0, 3)
    assert known_entries[-1] == WorkProgress("spelling", 3, 3)
    assert list(track("abc", "spelling")) == list("abc")  # nobody listens any more
    assert known_entries[-1] == WorkProgress("spelling", 3, 3)


def test_many_quick_steps_are_heard_a_few_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, known_entries = [0.0], list[ProgressEvent]()
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with report_to(known_entries.append):
        work = ProgressTask("steps", 1000, 100)
        for _ in range(900):
            now[0] += 0.001
            work.step()
    assert known_entries[0] == WorkProgress("steps", 100, 1000)
    assert known_entries[-1] == WorkProgress("steps", 1000, 1000)
    assert 4 <= len(known_entries) <= 8


def test_nobody_in_particular_leaves_it_to_the_one_outside() -> None:
    known_entries: list[ProgressEvent] = []
    with report_to(known_entries.append), report_to(no_progress):
        ProgressTask("inner", 1)
    assert known_entries == [WorkProgress("inner", 0, 1)]
