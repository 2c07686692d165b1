"""A pool of worker processes: one that fails or dies costs its task only, and all of
them end with this process.

`concurrent.futures` and loky have neither: a killed worker fails all tasks of its pool,
and workers in the midst of a task outlive a killed parent. Processes are spawned, so a
program of your own that uses them needs `if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from fedaux.core.errors import Exit, exit_code
from fedaux.core.memory import reuse_memory
from fedaux.core.progress import report, report_as, report_to

_GONE = (EOFError, BrokenPipeError, ConnectionResetError)


@dataclass(frozen=True)
class PoolTask:
    """`call()`, which can be sent to another process, once all it needs has
    succeeded.
    """

    name: str
    call: Callable[[], object]
    needs: frozenset[str] = frozenset()  # names of other tasks
    label: str = ""  # as which its progress is reported


@dataclass(frozen=True)
class TaskError:
    """Why a task failed, as an exit code and in words."""

    code: Exit
    text: str
    details: str = ""


TaskOutcome = tuple[PoolTask, TaskError | None]


def run_tasks(
    tasks: Sequence[PoolTask], jobs: int, threads: int
) -> Iterator[TaskOutcome]:
    """Yield each task as it ends, with its error if it failed. A single job runs in
    this process, in order.
    """
    if jobs > 1:
        yield from _Pool(list(tasks), jobs, threads).run()
        return
    for task in tasks:
        with report_as(task.label):
            error = _attempt(task)
        yield task, error


@dataclass
class _Pool:
    """A worker is known by the connection to it."""

    waiting: list[PoolTask]
    jobs: int
    threads: int
    processes: dict[Connection, SpawnProcess] = field(default_factory=dict)
    busy: dict[Connection, PoolTask] = field(default_factory=dict)

    def run(self) -> Iterator[TaskOutcome]:
        ended: dict[str, TaskError | None] = {}
        try:
            while self.waiting or self.busy:
                for task, error in [*self._start(ended), *self._receive()]:
                    ended[task.name] = error
                    yield task, error
        finally:
            self._terminate()

    def _start(self, ended: dict[str, TaskError | None]) -> Iterator[TaskOutcome]:
        """Give tasks to idle workers. A task fails if one that it needs has failed."""
        ready = [task for task in self.waiting if task.needs <= ended.keys()]
        for task in ready:
            errors = [error for need in task.needs if (error := ended[need])]
            if errors:
                self.waiting.remove(task)
                yield task, errors[0]
            elif len(self.busy) < self.jobs:
                self.waiting.remove(task)
                worker = self._idle() or self._spawn()
                self.busy[worker] = task
                worker.send(task)

    def _idle(self) -> Connection | None:
        for worker in self.processes:
            if worker not in self.busy:
                return worker
        return None

    def _receive(self) -> Iterator[TaskOutcome]:
        """Wait for a message; yield the tasks that end with it."""
        if not self.busy:
            return
        for connection in wait(list(self.busy)):
            assert isinstance(connection, Connection)
            task = self.busy[connection]
            try:
                message = connection.recv()
            except _GONE:
                del self.busy[connection]
                yield task, _died(self.processes.pop(connection))
                continue
            if message is None or isinstance(message, TaskError):
                del self.busy[connection]
                yield task, message
            else:
                report(replace(message, run=task.label))

    def _spawn(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(
            target=_serve, args=(there, self.threads), daemon=True
        )
        process.start()
        there.close()  # otherwise the death of the process would go unnoticed
        self.processes[here] = process
        return here

    def _terminate(self) -> None:
        """Terminate the workers without waiting: what a run has saved stays intact
        whenever its process ends.
        """
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()


def _serve(connection: Connection, threads: int) -> None:
    """A worker's main. Ctrl-C reaches all processes of a terminal: the parent decides
    what it means.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # half-written files are removed on the way out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    import torch

    torch.set_num_threads(threads)
    reuse_memory()
    try:
        while True:
            task = connection.recv()
            with report_to(connection.send):
                error = _attempt(task)
            connection.send(error)
    except _GONE:
        return  # the parent is gone


def _attempt(task: PoolTask) -> TaskError | None:
    try:
        task.call()
    except Exception as error:
        reason = str(error) or type(error).__name__
        details = "".join(traceback.format_exception(error))
        return TaskError(exit_code(error), reason, details)
    return None


def _died(process: SpawnProcess) -> TaskError:
    process.join()
    code = process.exitcode or 0
    reason = f"by signal {-code}" if code < 0 else f"with code {code}"
    return TaskError(
        Exit.STOPPED,
        f"its process was ended {reason} from outside: often memory ran out, and fewer "
        "--jobs help. "
        'Your program must start sweeps below `if __name__ == "__main__":`.',
    )
