"""Tuning, run: the same budget for every method, chosen by validation records, never by test records.

A setting that goes on continues its own run. What has been run is read again: a tuning that was stopped goes on with
the same call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedaux.config.methods import PAPER
from fedaux.config.schema import Config
from fedaux.core.errors import Exit
from fedaux.core.progress import OnProgress, SweepProgress, no_progress
from fedaux.sweeps.engine import execute, finished
from fedaux.sweeps.grid import Run
from fedaux.sweeps.result import FailedRun, raise_failures
from fedaux.sweeps.tuning_plan import Tuning, best
from fedaux.sweeps.tuning_result import write_tuning

LOST = (Exit.DIVERGED, Exit.CLIENTS)  # how a run ends whose setting makes training diverge
UNIT = "rounds of tuning"


def tune(
    base: Config,
    folder: Path,
    methods: Sequence[str] = PAPER,
    budget: int = 8,
    *,
    seeds: int = 1,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
) -> Tuning:
    """Find good settings for each method with the same number of runs and rounds, and write them into `folder`.

    Args:
        base: What to tune; its `method` plays no part. Its test records are never looked at.
        folder: For the runs, and for what they have shown; `Chosen.read` takes it to a comparison.
        methods: Names in `METHODS`, or `module:attribute`; by default the nine of the paper.
        budget: How many settings of each method are tried.
        seeds: On how many splits. None of them is among the first thousand from the config's own seed on.
        jobs: As in `compare`; so are `threads`, `on_progress` and `cache`.
    """
    plan = Tuning.of(base, methods, budget, seeds)
    found = run_tuning(plan, folder, jobs=jobs, threads=threads, on_progress=on_progress, cache=cache)
    return write_tuning(found, folder)


def run_tuning(
    tuning: Tuning,
    folder: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
) -> Tuning:
    """All rungs, every method's runs of a rung together. The trials of the result have their scores.

    A setting that makes training diverge has accuracy 0. Any other failure ends the tuning after its rung: a method
    whose runs fail for reasons of their own would be tuned with less than the others. Started again, it continues.
    """
    trials = {name: [replace(trial, scores={}) for trial in found] for name, found in tuning.trials.items()}
    tuning, alive, before, done = replace(tuning, trials=trials), trials, 0, 0
    total = sum(map(tuning.total_rounds, trials))
    for rung in tuning.rungs:
        alive = {name: best(found, rung.settings) for name, found in alive.items()}
        entered = [trial for found in alive.values() for trial in found]
        runs = [run for trial in entered for run in tuning.runs(trial, rung.rounds, folder)]
        missing = [run for run in runs if not finished(run)]
        done += (len(runs) - len(missing)) * (rung.rounds - before)
        on_progress(SweepProgress(done, total, unit=UNIT))
        lost, failures = set[Path](), list[FailedRun]()
        for run, error in execute(missing, jobs, threads, on_progress, cache=cache):
            done += rung.rounds - before
            result = None if error else finished(run)
            if error and error.code in LOST:
                lost.add(run.folder)
            elif error:
                failures.append(FailedRun(run, error))
            accuracy = result.curve[rung.rounds - 1] if result else None
            on_progress(SweepProgress(done, total, run.label, accuracy, UNIT))
        raise_failures(failures, len(runs), folder)
        for trial in entered:
            accuracies = [
                0.0 if run.folder in lost else _accuracy(run, rung.rounds)
                for run in tuning.runs(trial, rung.rounds, folder)
            ]
            trial.scores[rung.rounds] = sum(accuracies) / len(accuracies)
        before = rung.rounds
    return tuning


def _accuracy(run: Run, round_: int) -> float:
    result = finished(run)
    assert result is not None
    return result.curve[round_ - 1]
