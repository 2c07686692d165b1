"""Tasks end in any order, each with its own error, and none waits for what has failed."""

import pytest

from fedaux.experiments.sweeps.workers import Task, run_tasks


def _fine(on_progress: object) -> None:
    pass


def _fails(on_progress: object) -> None:
    raise ValueError("no luck")


@pytest.mark.parametrize("others", [0, 1])
def test_tasks_that_lack_something_may_be_the_last(others: int) -> None:
    """Nobody is busy any more when they are found to lack it: the pool must not wait for a message from nobody."""
    tasks = [Task(f"other {i}", _fine, ()) for i in range(others)]
    tasks += [Task("first", _fails, ()), Task("second", _fine, (), frozenset({"first"}))]
    tasks.append(Task("third", _fine, (), frozenset({"second"})))
    ended = {task.name: error and error.text for task, error in run_tasks(tasks, 2, 1, lambda *_: None)}
    assert ended == {
        **{f"other {i}": None for i in range(others)},
        **dict.fromkeys(("first", "second", "third"), "no luck"),
    }
