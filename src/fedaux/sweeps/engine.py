"""Runs a sweep: every run in its own folder, several at a time; finished runs are kept,
and a failure ends no other.

sweep = Sweep.load("grid.toml")
write_results(run_sweep(sweep, Path("runs/grid"), jobs=2))
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.method_facts import reason
from fedaux.config.methods import find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically
from fedaux.core.progress import OnProgress, ProgressEvent, SweepProgress, no_progress
from fedaux.report.arms import ArmResult, collapsed, round_metrics
from fedaux.report.comparison_page import write_comparison
from fedaux.report.statistics import HEADER as DIFFERENCES
from fedaux.report.statistics import differences, differences_csv
from fedaux.report.tables import (
    SPREAD,
    Table,
    latex,
    markdown,
    pivot,
    runs_csv,
    summary,
    summary_csv,
    tasks,
)
from fedaux.report.terminal import plural
from fedaux.runs.folders import stored_state
from fedaux.runs.runner import pretrain, run
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import STATE_FILE, StateError
from fedaux.sweeps.grid import SYMBOLS, Arm, Run, Sweep, describe
from fedaux.sweeps.workers import Task, TaskError, run_tasks

PAIRED = "Against the best arm on the same problem, paired by seed; p by Student's t, corrected by Holm:"


class SweepError(FedauxError):
    """Some runs failed while others continued; the exit code is that of the first
    failure.
    """

    def __init__(self, text: str, code: Exit) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class FailedRun:
    run: Run
    error: TaskError


@dataclass(frozen=True, eq=False)
class SweepResult:
    """The outcome of a sweep.

    Attributes:
        sweep: What was run.
        folder: The folder of its runs.
        arms: The arms with at least one finished run.
        failures: The runs that failed.
        report: The report's page; None until `write_results` has written it.
    """

    sweep: Sweep
    folder: Path
    arms: tuple[ArmResult, ...]
    failures: tuple[FailedRun, ...] = ()
    report: Path | None = None

    def __repr__(self) -> str:
        return f"{self.table}\n{self.folder}"

    def _repr_html_(self) -> str:
        """Return the table as HTML, for Jupyter."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.table.header)
        rows = (
            "".join(f"<td>{escape(cell)}</td>" for cell in row)
            for row in self.table.texts()
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    @property
    def curves(self) -> dict[str, NDArray[np.float64]]:
        """Test accuracy of each arm by its label, (seeds, rounds)."""
        return {arm.label: arm.curves for arm in self.arms}

    @property
    def accuracy(self) -> dict[str, float]:
        """Test accuracy of each arm by its label, after the last round, mean over
        seeds.
        """
        return {arm.label: float(arm.curves[:, -1].mean()) for arm in self.arms}

    @property
    def table(self) -> Table:
        """A table of the accuracy of every arm."""
        return summary(
            self.curves,
            "method" if list(self.sweep.axes) in ([], ["method"]) else "arm",
            tasks(self.arms),
        )

    @property
    def caption(self) -> str:
        """The settings that all arms share; those that vary are in the table."""
        base, sweep = self.sweep.base, self.sweep
        facts = {
            "data.source": base.data.source,
            "data.clients": plural(base.data.clients, "client"),
            "data.alpha": f"{SYMBOLS['data.alpha']} = {base.data.alpha:g}",
            "prototypes": ", ".join(spec.label for spec in base.prototypes),
            "rounds": plural(base.rounds, "round"),
        }
        common = ", ".join(fact for key, fact in facts.items() if key not in sweep.axes)
        title = f"{sweep.title}. " if sweep.title else ""
        spread = f" {SPREAD}" if sweep.seeds > 1 else ""
        what = "Validation" if base.data.validation_fraction else "Test"
        seeds = plural(sweep.seeds, "seed")
        return (
            f"{title}{what} accuracy in %: {common}, {seeds}.{spread} "
            f"Settings: {self.settings}."
        )

    @property
    def settings(self) -> str:
        """Where the methods' settings come from: tuning, a preset, or the config."""
        return self.sweep.chosen.note(self.sweep.base, list(self.sweep.axes))

    @property
    def chosen(self) -> list[tuple[str, str]]:
        """Pairs of method and settings, for methods whose settings are not those of the
        config.
        """
        methods = dict.fromkeys(arm.config.method for arm in self.sweep.arms)
        found = {
            find_method(name).label: self.sweep.chosen.of(name) for name in methods
        }
        return [
            (label, describe(settings)) for label, settings in found.items() if settings
        ]

    @property
    def privacy(self) -> str:
        """The privacy statement of the arms that release anything; if they differ, each
        statement with its arms.
        """
        labels: dict[str, list[str]] = {}
        for arm in self.arms:
            if arm.privacy:
                labels.setdefault(arm.privacy, []).append(arm.label)
        if len(labels) == 1:
            return next(iter(labels))
        return "\n\n".join(
            f"{'; '.join(names)}: {statement}" for statement, names in labels.items()
        )

    @property
    def privacy_line(self) -> str:
        """The privacy of the arms that release anything, in one line."""
        lines = dict.fromkeys(arm.privacy_line for arm in self.arms if arm.privacy_line)
        return "; ".join(lines)

    @property
    def verdict(self) -> str:
        """Who won, and why, in plain words; "" where not methods are compared."""
        if list(self.sweep.axes) != ["method"] or len(self.arms) < 2:
            return ""
        ranked = sorted(self.arms, key=lambda arm: -self.accuracy[arm.label])
        trained = [
            arm for arm in ranked if not find_method(arm.settings["method"]).analytic
        ]
        shown = list(
            dict.fromkeys([ranked[0].label, *(arm.label for arm in trained[:1])])
        )
        methods = {arm.label: find_method(arm.settings["method"]) for arm in ranked}
        texts = [
            f"{label} has the highest "
            f"accuracy{' of the methods that train' if place else ''}, "
            f"{100 * self.accuracy[label]:.1f} %: {reason(methods[label])}."
            for place, label in enumerate(shown)
        ]
        return " ".join(texts)

    @property
    def collapsed(self) -> str:
        """A sentence that names the arms whose model collapsed; "" for none."""
        names = [arm.label for arm in self.arms if arm.warning]
        return (
            f"Collapsed: {'; '.join(names)}. Models no better than the commonest "
            "class, or that give up classes; the report says which, and what to try "
            "first."
            if names
            else ""
        )

    def raise_failures(self) -> None:
        """Raise `SweepError` if a run failed."""
        raise_failures(self.failures, len(self.sweep.runs(self.folder)), self.folder)

    def to_dict(self) -> dict[str, Any]:
        failures = [
            {
                "label": one.run.label,
                "code": int(one.error.code),
                "error": one.error.text,
            }
            for one in self.failures
        ]
        return {
            "title": self.sweep.title,
            "folder": str(self.folder),
            "settings": self.settings,
            "chosen": dict(self.chosen),
            "axes": {key: list(values) for key, values in self.sweep.axes.items()},
            "arms": [arm.to_dict(self.folder) for arm in self.arms],
            "failures": failures,
        }


def raise_failures(failures: Sequence[FailedRun], total: int, folder: Path) -> None:
    """Raise one error for all runs that failed, if any did, with the first few
    reasons.
    """
    if not failures:
        return
    shown = " ".join(
        f"{one.run.label}: {one.error.text.rstrip('.')}." for one in failures[:3]
    )
    more = f" (the first 3 of {len(failures)})" if len(failures) > 3 else ""
    raise SweepError(
        f"{len(failures)} of {total} runs failed{more}. {shown} What the others have "
        f"is kept in {folder}; the same command continues with what is missing.",
        failures[0].error.code,
    )


def write_results(result: SweepResult) -> SweepResult:
    """Write report.html with its charts, table.md, table.csv, table.tex, runs.csv and
    sweep.json to the sweep's folder.

    Args:
        result: The outcome of `run_sweep`. `SweepError` is raised if no run has
            finished.

    Returns:
        The same outcome, with the path of its report.
    """
    if not result.arms:
        result.raise_failures()  # there is nothing else to show
    table, caption, pivoted = result.table, result.caption, pivot(result.arms)
    label = "tab:" + re.sub(
        r"[^a-z0-9]+", "-", result.folder.absolute().name.lower()
    ).strip("-")
    settings = [f"{label}: {settings}." for label, settings in result.chosen]
    notes = " ".join(
        [
            *settings,
            *([f"Privacy: {result.privacy_line}."] if result.privacy_line else []),
        ]
    )
    text, tex = (
        f"{caption}\n\n{markdown(table.texts(), table.header)}",
        latex(table, caption, notes, label),
    )
    if pivoted:
        text += (
            f"\nAfter the last round:\n\n{markdown(pivoted.texts(), pivoted.header)}"
        )
        tex += "\n" + latex(
            pivoted, f"{caption} After the last round.", notes, f"{label}-pivot"
        )
    found = differences(result.arms)
    if found:
        text += f"\n{PAIRED}\n\n{markdown([one.cells() for one in found], DIFFERENCES)}"
    if result.chosen:
        text += f"\nWith:\n\n{markdown(result.chosen, ('method', 'settings'))}"
    text += f"\n{result.collapsed}\n" if result.collapsed else ""
    files = {
        "table.md": f"{text}\n{result.privacy}\n" if result.privacy else text,
        "table.tex": tex,
        "table.csv": summary_csv(result.arms),
        "runs.csv": runs_csv(result.arms),
        **({"differences.csv": differences_csv(found)} if found else {}),
        "sweep.json": json.dumps(result.to_dict(), indent=1, ensure_ascii=False),
    }
    for name, content in files.items():
        write_atomically(result.folder / name, content.encode())
    title = result.sweep.title or "Methods side by side"
    return replace(
        result,
        report=write_comparison(
            result.folder, title, result.arms, f"settings {result.settings}"
        ),
    )


def run_sweep(
    sweep: Sweep,
    folder: Path,
    *,
    jobs: int = 1,
    threads: int = 1,
    on_progress: OnProgress = no_progress,
    cache: Path | None = None,
) -> SweepResult:
    """Run all runs of a sweep that are not finished yet.

    An extractor is trained once, before the runs that share it. `write_results` writes
    tables and a report of the result.

    Args:
        sweep: What to run.
        folder: The folder for the runs. Runs that are already finished there are only
            read.
        jobs: The number of parallel runs, each in its own process; a single job runs in
            this process.
        threads: The number of PyTorch threads of each run.
        on_progress: Called with events of `fedaux.core.progress`.
        cache: The folder for extractors and features, as in `run`.

    Returns:
        The arms with their results, and the runs that failed.
    """
    runs = sweep.runs(folder)
    missing = [each for each in runs if not finished(each)]
    done, failures = len(runs) - len(missing), list[FailedRun]()
    on_progress(SweepProgress(done, len(runs)))
    for ended, error in execute(missing, jobs, threads, on_progress, cache):
        done += 1
        if error:
            failures.append(FailedRun(ended, error))
        result = None if error else finished(ended)
        on_progress(
            SweepProgress(
                done, len(runs), ended.label, result.accuracy if result else None
            )
        )
    return replace(read_sweep(sweep, folder), failures=tuple(failures))


def execute(
    runs: Sequence[Run],
    jobs: int,
    threads: int,
    on_progress: OnProgress,
    cache: Path | None = None,
) -> Iterator[tuple[Run, TaskError | None]]:
    """Yield each run as it ends, with its error if it failed."""
    by_folder = {str(each.folder): each for each in runs}

    def on_task_progress(task: Task, event: ProgressEvent) -> None:
        on_progress(
            replace(
                event,
                run=by_folder[task.name].label if task.name in by_folder else task.name,
            )
        )

    for task, error in run_tasks(
        _tasks(runs, cache, jobs > 1), jobs, threads, on_task_progress
    ):
        if task.name in by_folder:
            ended = by_folder[task.name]
            yield ended, _with_details(ended, error) if error else None


def read_sweep(sweep: Sweep, folder: Path) -> SweepResult:
    """Read the finished runs of a sweep from its folder; nothing is run."""
    arms = [
        _arm_result(arm, list(filter(None, map(finished, sweep.runs_of(arm, folder)))))
        for arm in sweep.arms
    ]
    return SweepResult(sweep, folder, tuple(arm for arm in arms if arm.seeds))


def _arm_result(arm: Arm, results: list[FinishedRun]) -> ArmResult:
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
        privacy_line=results[0].ledger.summary() if results and private else "",
        metrics=tuple(round_metrics(result, len(result.curve)) for result in results),
    )


def finished(run: Run) -> FinishedRun | None:
    """Return a run's result; None if it has yet to be run, which will also report what
    is wrong with its folder.
    """
    try:
        state = stored_state(run.config, run.folder)
    except StateError:
        return None
    return (
        FinishedRun(state, run.folder) if state and state.round >= run.rounds else None
    )


def _tasks(runs: Sequence[Run], cache: Path | None, shared: bool) -> list[Task]:
    """One for each run. Those `shared` among processes wait for their extractors, so
    that no two train the same.
    """
    extractors: dict[Hashable, Task] = {}
    tasks = []
    for each in runs:
        needs = set()
        for spec in _to_pretrain(each) if shared else ():
            config = replace(each.config, prototypes=(spec,))
            task = Task(
                f"extractor {len(extractors) + 1}",
                partial(pretrain, config, cache=cache),
            )
            needs.add(extractors.setdefault(_extractor_key(config), task).name)
        call = partial(run, each.config, each.folder, cache=cache, until=each.until)
        tasks.append(Task(str(each.folder), call, frozenset(needs)))
    return [*extractors.values(), *tasks]


def _to_pretrain(run: Run) -> tuple[PrototypeSpec, ...]:
    """A run that has begun has its extractors."""
    begun = (run.folder / STATE_FILE).is_file()
    wanted = (
        find_method(run.config.method).pretrained and run.config.pretrain.epochs > 0
    )
    return run.config.prototypes if wanted and not begun else ()


def _extractor_key(config: Config) -> Hashable:
    """Settings that decide what an extractor sees and how it is trained; runs that
    agree in them share it.
    """
    data, aux = config.data, replace(config.aux, negatives=0.5)
    held_out = (
        data.source,
        data.path,
        data.options,
        data.test_fraction,
        data.test_seed,
        config.seed,
    )
    return aux, config.pretrain, config.prototypes, None if aux.source else held_out


def _with_details(run: Run, error: TaskError) -> TaskError:
    """An unexpected error leaves its traceback beside the run."""
    if error.code is not Exit.BUG:
        return error
    path = run.folder / "error.txt"
    write_atomically(path, error.details.encode())
    return replace(
        error,
        text=f"this should not have happened ({error.text}). Please report it with {path}",
    )
