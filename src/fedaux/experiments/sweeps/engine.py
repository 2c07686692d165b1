"""A sweep at work: every run in its own folder, several at a time, nothing done twice, and one failure ends no other.

sweep = Sweep.load("grid.toml")
found = run_sweep(sweep, Path("runs/grid"), jobs=2)
write_results(found)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedaux.algorithms.results import Result
from fedaux.algorithms.run_state import FILE, StateError
from fedaux.config.methods import METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.errors import Exit
from fedaux.core.io import write_atomically
from fedaux.core.progress import OnProgress, ProgressEvent, SweepProgress, SweepRunProgress, no_progress
from fedaux.experiments.callbacks import Callback
from fedaux.experiments.runner import pretrain, run, stored_state
from fedaux.experiments.sweeps.grid import Arm, Run, Sweep
from fedaux.experiments.sweeps.swept import Failed, SweepError, Swept
from fedaux.experiments.sweeps.workers import Task, Trouble, work
from fedaux.report.arms import ArmResult

__all__ = ["Arm", "Failed", "Run", "Sweep", "SweepError", "Swept", "read_sweep", "run_sweep"]


def run_sweep(
    sweep: Sweep,
    folder: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    callbacks: Sequence[Callback] = (),
    cache: Path | None = None,
) -> Swept:
    """All runs that are not finished, `jobs` at a time in processes of `threads` each; one job runs in this process.

    An extractor is trained once, before the runs that share it. A run that fails is among the `failures`. Callbacks
    live in this process, and follow one job only. `write_results` makes tables and a report of it.
    """
    runs = sweep.runs(folder)
    missing = {str(one.folder): one for one in runs if not _result(one)}
    progress = _Progress(len(runs), len(runs) - len(missing), on_progress)
    tasks = _tasks(list(missing.values()), cache, tuple(callbacks), shared=jobs > 1)

    def hear(task: Task, event: ProgressEvent) -> None:
        on_progress(SweepRunProgress(missing[task.name].label if task.name in missing else task.name, event))

    failures = []
    for task, trouble in work(tasks, jobs, threads, hear):
        if task.name not in missing:
            continue
        one = missing[task.name]
        if trouble:
            failures.append(Failed(one, _with_details(one, trouble)))
        progress.ended(one, trouble)
    return replace(read_sweep(sweep, folder), failures=tuple(failures))


def read_sweep(sweep: Sweep, folder: Path) -> Swept:
    """What the folder holds of a sweep; nothing is run."""
    measured = [_measured(arm, sweep.runs_of(arm, folder)) for arm in sweep.arms]
    return Swept(sweep, folder, tuple(arm for arm in measured if len(arm.seeds)))


def _measured(arm: Arm, runs: list[Run]) -> ArmResult:
    results = [result for result in map(_result, runs) if result]
    private = METHODS[arm.config.method].scores or arm.config.privacy.private_training
    return ArmResult(
        arm.label,
        arm.settings,
        arm.words,
        tuple(result.state.config.seed for result in results),
        tuple(result.folder for result in results),
        np.array([result.curve for result in results]),
        results[0].privacy if results and private else "",
    )


def _result(one: Run) -> Result | None:
    """Of a finished run. None where it is yet to be run, which also brings to light what is wrong with its folder."""
    try:
        state = stored_state(one.config, one.folder)
    except StateError:
        return None
    return Result(state, one.folder) if state and state.round == one.config.rounds else None


def _run(
    config: Config, folder: Path, cache: Path | None, callbacks: Sequence[Callback], on_progress: OnProgress
) -> None:
    run(config, folder, on_progress=on_progress, cache=cache, callbacks=callbacks)


def _prepare(config: Config, cache: Path | None, on_progress: OnProgress) -> None:
    pretrain(config, on_progress=on_progress, cache=cache)


def _tasks(runs: list[Run], cache: Path | None, callbacks: tuple[Callback, ...], shared: bool) -> list[Task]:
    """One for each run. Those `shared` among processes wait for their extractors, so that no two train the same."""
    extractors: dict[Hashable, Task] = {}
    tasks = []
    for one in runs:
        needs = set()
        for spec in _to_pretrain(one) if shared else ():
            config = replace(one.config, prototypes=(spec,))
            name = f"extractor {len(extractors) + 1}"
            needs.add(extractors.setdefault(_made_from(config), Task(name, _prepare, (config, cache))).name)
        own = () if shared else callbacks
        tasks.append(Task(str(one.folder), _run, (one.config, one.folder, cache, own), frozenset(needs)))
    return [*extractors.values(), *tasks]


def _to_pretrain(one: Run) -> tuple[PrototypeSpec, ...]:
    """A run that has begun has its extractors."""
    begun = (one.folder / FILE).is_file()
    wanted = METHODS[one.config.method].pretrained and one.config.pretrain.epochs > 0
    return one.config.prototypes if wanted and not begun else ()


def _made_from(config: Config) -> Hashable:
    """Settings that decide what an extractor sees and how it is trained; what else differs, it is the same one."""
    data, aux = config.data, replace(config.aux, negatives=0.5)
    held_out = (data.source, data.path, data.options, data.test_fraction, config.seed)
    return aux, config.pretrain, config.prototypes, None if aux.source else held_out


def _with_details(one: Run, trouble: Trouble) -> Trouble:
    """What nobody foresaw leaves its traceback beside the run."""
    if trouble.code is not Exit.BUG:
        return trouble
    path = one.folder / "error.txt"
    write_atomically(path, trouble.details.encode())
    return replace(trouble, text=f"this should not have happened ({trouble.text}). Please report it with {path}")


@dataclass
class _Progress:
    """Runs done of all, and how the last of them ended."""

    of: int
    before: int
    on_progress: OnProgress
    done: int = 0

    def __post_init__(self) -> None:
        self.on_progress(SweepProgress(self.before, self.of))

    def ended(self, one: Run, trouble: Trouble | None) -> None:
        self.done += 1
        result = None if trouble else _result(one)
        accuracy = result.accuracy if result else None
        self.on_progress(SweepProgress(self.before + self.done, self.of, one.label, accuracy))
