"""Processes that work through tasks, one at a time each: they tell how it goes, and may fail or die without the others.

They are started anew (spawn), so a program of your own that uses them needs `if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from fedaux.core.errors import Exit, exit_code
from fedaux.core.progress import OnProgress, ProgressEvent

Hear = Callable[["Task", ProgressEvent], None]
_GONE = (EOFError, BrokenPipeError, ConnectionResetError)


@dataclass(frozen=True)
class Task:
    """`call(*arguments, on_progress)`, a function that another process can import, once all it needs has ended well."""

    name: str
    call: Callable[..., None]
    arguments: tuple[Any, ...]
    needs: frozenset[str] = frozenset()  # names of other tasks


@dataclass(frozen=True)
class Trouble:
    """How a task failed: what a program that ends so should tell the shell, and what it should tell people."""

    code: Exit
    text: str
    details: str = ""


def work(tasks: Sequence[Task], jobs: int, threads: int, hear: Hear) -> Iterator[tuple[Task, Trouble | None]]:
    """Each task as it ends, with its trouble if it had any. One job is done in this process, in the order given."""
    if jobs > 1:
        yield from _Crew(list(tasks), jobs, threads, hear).work()
        return
    for task in tasks:
        yield task, _attempt(task, partial(hear, task))


@dataclass
class _Crew:
    """`busy`: who listens at the other end of a connection, and what it does at the moment."""

    waiting: list[Task]
    jobs: int
    threads: int
    hear: Hear
    idle: list[tuple[Connection, SpawnProcess]] = field(default_factory=list)
    busy: dict[Connection, tuple[SpawnProcess, Task]] = field(default_factory=dict)

    def work(self) -> Iterator[tuple[Task, Trouble | None]]:
        ended: dict[str, Trouble | None] = {}
        try:
            while self.waiting or self.busy:
                for task in [task for task in self.waiting if task.needs <= ended.keys()]:
                    lacking = next((ended[need] for need in task.needs if ended[need]), None)
                    if lacking:
                        self.waiting.remove(task)
                        ended[task.name] = lacking
                        yield task, lacking
                    elif len(self.busy) < self.jobs:
                        self.waiting.remove(task)
                        self._give(task)
                for task, trouble in (
                    self._listen() if self.busy else ()
                ):  # what lacked something may have been the last
                    ended[task.name] = trouble
                    yield task, trouble
        finally:
            self._dismiss()

    def _give(self, task: Task) -> None:
        connection, process = self.idle.pop() if self.idle else _hire(self.threads)
        self.busy[connection] = process, task
        connection.send(task)

    def _listen(self) -> Iterator[tuple[Task, Trouble | None]]:
        """Wait until somebody says something; what ended by it."""
        for connection in wait(list(self.busy)):
            assert isinstance(connection, Connection)
            process, task = self.busy[connection]
            try:
                said = connection.recv()
            except _GONE:
                process.join()
                del self.busy[connection]
                yield task, _died(process.exitcode)
                continue
            if said is not None and not isinstance(said, Trouble):
                self.hear(task, said)
                continue
            del self.busy[connection]
            self.idle.append((connection, process))
            yield task, said

    def _dismiss(self) -> None:
        """What a run has saved stays whole whenever its process ends; those in the midst of one are not waited for."""
        processes = [process for _, process in self.idle] + [process for process, _ in self.busy.values()]
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()


def _hire(threads: int) -> tuple[Connection, SpawnProcess]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, threads), daemon=True)
    process.start()
    there.close()  # else nobody would notice that the process has died
    return here, process


def _serve(connection: Connection, threads: int) -> None:
    """A worker's life. Ctrl-C reaches all processes of a terminal: the one that started them decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # half-written files are removed on the way out
    import torch

    torch.set_num_threads(threads)
    try:
        while True:
            task: Task = connection.recv()
            connection.send(_attempt(task, connection.send))
    except _GONE:
        return  # whoever started this process is gone; so the first word after that ends it


def _attempt(task: Task, on_progress: OnProgress) -> Trouble | None:
    try:
        task.call(*task.arguments, on_progress)
    except Exception as error:
        text = str(error) or type(error).__name__
        return Trouble(exit_code(error), text, "".join(traceback.format_exception(error)))
    return None


def _died(code: int | None) -> Trouble:
    reason = f"by signal {-code}" if code is not None and code < 0 else f"with code {code}"
    return Trouble(
        Exit.STOPPED,
        f"its process was ended {reason} from outside: often memory ran out, and fewer --jobs help; "
        'a program of your own must start sweeps below `if __name__ == "__main__":`.',
    )
