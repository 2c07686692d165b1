"""One job runs tasks in this process, in order; each ends with its own error. Pools of processes are end to end."""

from functools import partial
from pathlib import Path

from fedaux.core.errors import Exit
from fedaux.core.progress import Notice, OnProgress, ProgressEvent
from fedaux.sweeps.workers import Task, run_tasks


def say(text: str, on_progress: OnProgress) -> None:
    on_progress(Notice(text))


def read(path: str, on_progress: OnProgress) -> None:
    Path(path).read_bytes()


def bug(on_progress: OnProgress) -> None:
    raise AssertionError


def test_tasks_end_in_order_and_say_how_they_go() -> None:
    tasks, events = [Task(name, partial(say, f"I am {name}")) for name in "abc"], list[tuple[str, ProgressEvent]]()
    ended = list(run_tasks(tasks, 1, 1, lambda task, event: events.append((task.name, event))))
    assert ended == [(task, None) for task in tasks]
    assert events == [(name, Notice(f"I am {name}")) for name in "abc"]


def test_a_task_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    tasks = [Task("a", partial(read, str(tmp_path / "gone"))), Task("b", bug), Task("c", partial(say, "fine"))]
    (_, missing), (_, unforeseen), (_, fine) = run_tasks(tasks, 1, 1, lambda task, event: None)
    assert fine is None
    assert missing is not None
    assert (missing.code, "gone" in missing.text) == (Exit.DATA, True)
    assert unforeseen is not None
    assert (unforeseen.code, unforeseen.text) == (Exit.BUG, "AssertionError")  # an error without words has its name
    assert "in bug" in unforeseen.details
