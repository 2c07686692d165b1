"""Runs a sweep: every run in its own folder, several at a time; finished runs are kept, and a failure ends no other.

sweep = Sweep.load("grid.toml")
write_results(run_sweep(sweep, Path("runs/grid"), jobs=2))
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fedaux.config.methods import PAPER, find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.errors import Exit
from fedaux.core.io import write_atomically
from fedaux.core.progress import OnProgress, ProgressEvent, SweepProgress, no_progress
from fedaux.report.arms import ArmResult, collapsed
from fedaux.runs.callbacks import Callback
from fedaux.runs.folders import stored_state
from fedaux.runs.runner import pretrain, run
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import FILE, StateError
from fedaux.sweeps.arms import Arm
from fedaux.sweeps.chosen import AS_CONFIGURED, Chosen
from fedaux.sweeps.grid import Run, Sweep
from fedaux.sweeps.result import FailedRun, SweepResult, write_results
from fedaux.sweeps.workers import Task, TaskError, run_tasks


def compare(
    base: Config,
    folder: Path,
    seeds: int,
    methods: Sequence[str] = PAPER,
    *,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
    chosen: Chosen = AS_CONFIGURED,
) -> SweepResult:
    """Run several methods from the same data, split and first weights, and write tables and a report.

    Args:
        base: What to run; its `method` plays no part.
        folder: For the runs, the tables and the report. Runs that are finished there already are only read.
        seeds: How many, from the config's own on.
        methods: Names in `METHODS`, or `module:attribute`; by default the nine of the paper.
        jobs: Runs at a time, each in a process of its own; more than 1 only below `if __name__ == "__main__":`.
        threads: Of PyTorch, for each.
        on_progress: As in `run`.
        cache: As in `run`.
        chosen: Settings of each method, `Chosen.read("runs/my-tune")` or `Chosen.preset("paper")`.
    """
    sweep = Sweep.of(base, {"method": methods}, seeds, chosen)
    return write_results(run_sweep(sweep, folder, jobs=jobs, threads=threads, on_progress=on_progress, cache=cache))


def run_sweep(
    sweep: Sweep,
    folder: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    callbacks: Sequence[Callback] = (),
    cache: Path | None = None,
) -> SweepResult:
    """All runs that are not finished, `jobs` at a time in processes of `threads` each; one job runs in this process.

    An extractor is trained once, before the runs that share it. A run that fails is among the `failures`. Callbacks
    live in this process, and follow one job only. `write_results` makes tables and a report of the result.
    """
    runs = sweep.runs(folder)
    missing = [each for each in runs if not finished(each)]
    done, failures = len(runs) - len(missing), list[FailedRun]()
    on_progress(SweepProgress(done, len(runs)))
    for ended, error in execute(missing, jobs, threads, on_progress, callbacks, cache):
        done += 1
        if error:
            failures.append(FailedRun(ended, error))
        result = None if error else finished(ended)
        on_progress(SweepProgress(done, len(runs), ended.label, result.accuracy if result else None))
    return replace(read_sweep(sweep, folder), failures=tuple(failures))


def execute(
    runs: Sequence[Run],
    jobs: int,
    threads: int,
    on_progress: OnProgress,
    callbacks: Sequence[Callback] = (),
    cache: Path | None = None,
) -> Iterator[tuple[Run, TaskError | None]]:
    """Each run as it ends, with its error if it failed."""
    by_folder = {str(each.folder): each for each in runs}

    def on_task_progress(task: Task, event: ProgressEvent) -> None:
        on_progress(replace(event, run=by_folder[task.name].label if task.name in by_folder else task.name))

    for task, error in run_tasks(_tasks(runs, cache, tuple(callbacks), jobs > 1), jobs, threads, on_task_progress):
        if task.name in by_folder:
            ended = by_folder[task.name]
            yield ended, _with_details(ended, error) if error else None


def read_sweep(sweep: Sweep, folder: Path) -> SweepResult:
    """What the folder holds of a sweep; nothing is run."""
    arms = [_arm_result(arm, sweep.runs_of(arm, folder)) for arm in sweep.arms]
    return SweepResult(sweep, folder, tuple(arm for arm in arms if arm.seeds))


def _arm_result(arm: Arm, runs: list[Run]) -> ArmResult:
    results = [result for result in map(finished, runs) if result]
    private = arm.config.releases or arm.config.privacy.private_training
    return ArmResult(
        arm.label,
        arm.settings,
        arm.labels,
        tuple(result.state.config.seed for result in results),
        tuple(result.folder for result in results),
        np.array([result.curve for result in results]),
        results[0].statement if results and private else "",
        collapsed(results),
    )


def finished(run: Run) -> FinishedRun | None:
    """Its result. None where it is yet to be run, which also brings to light what is wrong with its folder."""
    try:
        state = stored_state(run.config, run.folder)
    except StateError:
        return None
    return FinishedRun(state, run.folder) if state and state.round >= run.rounds else None


def _tasks(runs: Sequence[Run], cache: Path | None, callbacks: tuple[Callback, ...], shared: bool) -> list[Task]:
    """One for each run. Those `shared` among processes wait for their extractors, so that no two train the same."""
    extractors: dict[Hashable, Task] = {}
    tasks = []
    for each in runs:
        needs = set()
        for spec in _to_pretrain(each) if shared else ():
            config = replace(each.config, prototypes=(spec,))
            task = Task(f"extractor {len(extractors) + 1}", partial(pretrain, config, cache=cache))
            needs.add(extractors.setdefault(_extractor_key(config), task).name)
        followers = () if shared else callbacks
        call = partial(run, each.config, each.folder, cache=cache, callbacks=followers, until=each.until)
        tasks.append(Task(str(each.folder), call, frozenset(needs)))
    return [*extractors.values(), *tasks]


def _to_pretrain(run: Run) -> tuple[PrototypeSpec, ...]:
    """A run that has begun has its extractors."""
    begun = (run.folder / FILE).is_file()
    wanted = find_method(run.config.method).pretrained and run.config.pretrain.epochs > 0
    return run.config.prototypes if wanted and not begun else ()


def _extractor_key(config: Config) -> Hashable:
    """Settings that decide what an extractor sees and how it is trained; runs that agree in them share it."""
    data, aux = config.data, replace(config.aux, negatives=0.5)
    held_out = (data.source, data.path, data.options, data.test_fraction, data.test_seed, config.seed)
    return aux, config.pretrain, config.prototypes, None if aux.source else held_out


def _with_details(run: Run, error: TaskError) -> TaskError:
    """An unexpected error leaves its traceback beside the run."""
    if error.code is not Exit.BUG:
        return error
    path = run.folder / "error.txt"
    write_atomically(path, error.details.encode())
    return replace(error, text=f"this should not have happened ({error.text}). Please report it with {path}")
