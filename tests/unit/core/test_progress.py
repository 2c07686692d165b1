"""Work is reported to whoever listens, not too often, and its end always."""

import pytest

from fedaux.core import progress as module
from fedaux.core.progress import ProgressEvent, Work, WorkProgress, listening, no_progress, track


def test_items_come_as_they_are_and_their_count_is_heard() -> None:
    heard: list[ProgressEvent] = []
    with listening(heard.append):
        assert list(track("abc", "spelling")) == list("abc")
    assert heard[0] == WorkProgress("spelling", 0, 3)
    assert heard[-1] == WorkProgress("spelling", 3, 3)
    assert list(track("abc", "spelling")) == list("abc")  # nobody listens any more
    assert heard[-1] == WorkProgress("spelling", 3, 3)


def test_many_quick_steps_are_heard_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, heard = [0.0], list[ProgressEvent]()
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    with listening(heard.append):
        work = Work("steps", 1000, 100)
        for _ in range(900):
            now[0] += 0.001
            work.step()
    assert heard[0] == WorkProgress("steps", 100, 1000)
    assert heard[-1] == WorkProgress("steps", 1000, 1000)
    assert 4 <= len(heard) <= 8


def test_nobody_in_particular_leaves_it_to_the_one_outside() -> None:
    heard: list[ProgressEvent] = []
    with listening(heard.append), listening(no_progress):
        Work("inner", 1)
    assert heard == [WorkProgress("inner", 0, 1)]
