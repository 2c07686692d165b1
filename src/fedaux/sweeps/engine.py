"""Runs a sweep: every run in its own folder, several at a time; finished runs are kept,
and a failure ends no other.

    sweep = Sweep.load("grid.toml")
    write_results(run_sweep(sweep, Path("runs/grid"), jobs=2))
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fedaux.config.methods import find_method
from fedaux.config.parsing import ConfigError
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.errors import Exit
from fedaux.core.io import write_atomically
from fedaux.core.progress import (
    OnProgress,
    SweepProgress,
    no_progress,
    report,
    report_to,
)
from fedaux.data.federated import has_test_data
from fedaux.report.arms import ArmResult, collapsed, metrics_by_round, starts_of
from fedaux.runs.folders import stored_state
from fedaux.runs.runner import pretrain, run
from fedaux.server.result import FinishedRun, fall_warning
from fedaux.server.run_state import STATE_FILE, StateError
from fedaux.server.site_test import is_test_due
from fedaux.sweeps.grid import Arm, PlannedRun, Sweep
from fedaux.sweeps.results import FailedRun, SweepResult
from fedaux.sweeps.workers import PoolTask, TaskError, run_tasks


def run_sweep(
    sweep: Sweep,
    folder: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
) -> SweepResult:
    """Run all runs of a sweep that are still missing.

    An extractor is trained once, before the runs that share it. `write_results` writes
    tables and a report of the result.

    Args:
        sweep: What to run.
        folder: The folder for the runs. Runs that are already finished there are only
            read.
        jobs: The number of parallel runs, each in a separate process. A single job runs
            in this process.
        threads: The number of PyTorch threads of each run.
        on_progress: Called with events of `fedaux.core.progress`.
        cache: The folder for extractors and features, as in `run`.

    Returns:
        The arms with their results, and the runs that failed.
    """
    runs = sweep.runs(folder)
    missing = [run for run in runs if not finished(run)]
    done = len(runs) - len(missing)
    failures: list[FailedRun] = []
    with report_to(on_progress):
        report(SweepProgress(done, len(runs)))
        for ended, error in execute(missing, jobs, threads, cache):
            done += 1
            accuracy = None
            if error:
                failures.append(FailedRun(ended, error))
            elif result := finished(ended):
                accuracy = result.accuracy
            report(SweepProgress(done, len(runs), ended.label, accuracy))
    return replace(read_sweep(sweep, folder), failures=tuple(failures))


def execute(
    runs: Sequence[PlannedRun],
    jobs: int,
    threads: int,
    cache: Path | None = None,
) -> Iterator[tuple[PlannedRun, TaskError | None]]:
    """Yield each run as it ends, with its error if it failed."""
    for planned in runs:
        if not has_test_data(planned.config):
            raise ConfigError(
                f"Cannot compare {planned.label}: [data] names no labelled test data of "
                "the server, and every look at the sites costs ε. Name test data in "
                "data.source and data.path."
            )
    by_folder = {str(run.folder): run for run in runs}
    tasks = _tasks(runs, cache, shared=jobs > 1)
    for task, error in run_tasks(tasks, jobs, threads):
        # Extractors are tasks of their own. One that fails fails the runs that need it.
        if task.name not in by_folder:
            continue
        ended = by_folder[task.name]
        if error:
            error = _with_details(ended, error)
        yield ended, error


def read_sweep(sweep: Sweep, folder: Path) -> SweepResult:
    """Read the finished runs of a sweep from its folder. Nothing is run."""
    arms = []
    for arm in sweep.arms:
        results = [finished(run) for run in sweep.runs_of(arm, folder)]
        complete = [result for result in results if result is not None]
        if complete:
            arms.append(_arm_result(arm, complete))
    return SweepResult(sweep, folder, tuple(arms))


def _arm_result(arm: Arm, results: Sequence[FinishedRun]) -> ArmResult:
    """Put the finished runs of an arm together. There is at least one."""
    privacy = ""
    privacy_line = ""
    if arm.config.releases or arm.config.privacy.private_training:
        privacy = results[0].statement
        privacy_line = results[0].ledger.summary()
    metrics = [metrics_by_round(result, len(result.curve)) for result in results]
    return ArmResult(
        label=arm.label,
        settings=arm.settings,
        labels=arm.labels,
        seeds=tuple(result.state.config.seed for result in results),
        folders=tuple(result.folder for result in results),
        curves=np.array([result.curve for result in results]),
        privacy=privacy,
        warning=collapsed(results),
        privacy_line=privacy_line,
        starts=starts_of(results),
        fall=fall_warning(results[0].state.history),
        metrics=tuple(metrics),
    )


def finished(run: PlannedRun) -> FinishedRun | None:
    """Return a run's result, or None if it has yet to be run, which will also report what
    is wrong with its folder.
    """
    try:
        state = stored_state(run.config, run.folder)
    except StateError:
        return None
    if state is None or state.round < run.rounds or is_test_due(run.config, state):
        return None
    return FinishedRun(state, run.folder)


def _tasks(
    runs: Sequence[PlannedRun], cache: Path | None, shared: bool
) -> list[PoolTask]:
    """One for each run. Those `shared` among processes wait for their extractors, so
    that no two train the same.
    """
    extractors: dict[Hashable, PoolTask] = {}
    tasks = []
    for planned in runs:
        needs = set()
        for spec in _to_pretrain(planned) if shared else ():
            config = replace(planned.config, prototypes=(spec,))
            key = _extractor_key(config)
            if key not in extractors:
                name = f"extractor {len(extractors) + 1}"
                train = partial(pretrain, config, cache=cache)
                extractors[key] = PoolTask(name, train, label=name)
            needs.add(extractors[key].name)
        call = partial(
            run,
            planned.config,
            planned.folder,
            on_progress=no_progress,  # it reports to whoever listens to the sweep
            cache=cache,
            until=planned.until,
        )
        name = str(planned.folder)
        tasks.append(PoolTask(name, call, frozenset(needs), planned.label))
    return [*extractors.values(), *tasks]


def _to_pretrain(run: PlannedRun) -> tuple[PrototypeSpec, ...]:
    """Return the prototypes whose extractors a run needs. One that has begun has
    them.
    """
    if (run.folder / STATE_FILE).is_file() or not run.config.pretrain.trains:
        return ()
    if not find_method(run.config.method).pretrained:
        return ()
    return run.config.prototypes


def _extractor_key(config: Config) -> Hashable:
    """Settings that decide what an extractor sees and how it is trained; runs that
    agree in them share it.
    """
    # Pre-training sees all public records, however many of them are negatives.
    aux = replace(config.aux, negatives=0.5)
    if aux.source:
        return aux, config.pretrain, config.prototypes
    data = config.data
    held_out = (
        data.source,
        data.path,
        data.options,
        data.test_fraction,
        data.test_seed,
        config.seed,
    )
    return aux, config.pretrain, config.prototypes, held_out


def _with_details(run: PlannedRun, error: TaskError) -> TaskError:
    """An unexpected error leaves its traceback next to the run."""
    if error.code is not Exit.BUG:
        return error
    path = run.folder / "error.txt"
    write_atomically(path, error.details.encode())
    return replace(
        error,
        text=(
            f"this should not have happened ({error.text}). Please report it with "
            f"{path}"
        ),
    )
