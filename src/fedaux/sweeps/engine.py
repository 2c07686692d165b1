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
from fedaux.config.methods import Method, find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically
from fedaux.core.progress import OnProgress, ProgressEvent, SweepProgress, no_progress
from fedaux.report.arms import ArmResult, collapsed, round_metrics
from fedaux.report.comparison_page import write_comparison
from fedaux.report.statistics import HEADER as DIFFERENCES
from fedaux.report.statistics import Difference, differences, differences_csv
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
from fedaux.sweeps.grid import SYMBOLS, Arm, PlannedRun, Sweep, describe_settings
from fedaux.sweeps.workers import PoolTask, TaskError, run_tasks

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
    run: PlannedRun
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
        body = ""
        for row in self.table.texts():
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
            body += f"<tr>{cells}</tr>"
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
        only_methods = list(self.sweep.axes) in ([], ["method"])
        name = "method" if only_methods else "arm"
        return summary(self.curves, name, tasks(self.arms))

    @property
    def caption(self) -> str:
        """The settings that all arms share; those that vary are in the table."""
        base = self.sweep.base
        settings = {
            "data.source": base.data.source,
            "data.clients": plural(base.data.clients, "client"),
            "data.alpha": f"{SYMBOLS['data.alpha']} = {base.data.alpha:g}",
            "prototypes": ", ".join(spec.label for spec in base.prototypes),
            "rounds": plural(base.rounds, "round"),
        }
        shared = [
            words for key, words in settings.items() if key not in self.sweep.axes
        ]
        title = f"{self.sweep.title}. " if self.sweep.title else ""
        spread = f" {SPREAD}" if self.sweep.seeds > 1 else ""
        records = "Validation" if base.data.validation_fraction else "Test"
        seeds = plural(self.sweep.seeds, "seed")
        return (
            f"{title}{records} accuracy in %: {', '.join(shared)}, {seeds}.{spread} "
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
        pairs = []
        for method in dict.fromkeys(arm.config.method for arm in self.sweep.arms):
            settings = self.sweep.chosen.of(method)
            if settings:
                pairs.append((find_method(method).label, describe_settings(settings)))
        return pairs

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
        methods = {arm.label: find_method(arm.settings["method"]) for arm in ranked}
        first = ranked[0].label
        sentences = [self._praise(first, methods[first])]
        # A computed head may be first, and the best that trains is then named as well.
        trained = [arm.label for arm in ranked if not methods[arm.label].analytic]
        if trained and trained[0] != first:
            rival = trained[0]
            sentences.append(
                self._praise(rival, methods[rival], " of the methods that train")
            )
        return " ".join(sentences)

    def _praise(self, label: str, method: Method, among: str = "") -> str:
        accuracy = 100 * self.accuracy[label]
        return (
            f"{label} has the highest accuracy{among}, {accuracy:.1f} %: "
            f"{reason(method)}."
        )

    @property
    def collapsed(self) -> str:
        """A sentence that names the arms whose model collapsed; "" for none."""
        names = [arm.label for arm in self.arms if arm.warning]
        if not names:
            return ""
        return (
            f"Collapsed: {'; '.join(names)}. Models no better than the commonest "
            "class, or that give up classes; the report says which, and what to try "
            "first."
        )

    def raise_failures(self) -> None:
        """Raise `SweepError` if a run failed."""
        raise_failures(self.failures, len(self.sweep.runs(self.folder)), self.folder)

    def to_dict(self) -> dict[str, Any]:
        failures = [
            {
                "label": failure.run.label,
                "code": int(failure.error.code),
                "error": failure.error.text,
            }
            for failure in self.failures
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
    reasons = [
        f"{failure.run.label}: {failure.error.text.rstrip('.')}."
        for failure in failures[:3]
    ]
    shown = " ".join(reasons)
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
    compared = differences(result.arms)
    files = {
        "table.md": _markdown_page(result, compared),
        "table.tex": _latex_tables(result),
        "table.csv": summary_csv(result.arms),
        "runs.csv": runs_csv(result.arms),
        "sweep.json": json.dumps(result.to_dict(), indent=1, ensure_ascii=False),
    }
    if compared:
        files["differences.csv"] = differences_csv(compared)
    for name, content in files.items():
        write_atomically(result.folder / name, content.encode())
    title = result.sweep.title or "Methods side by side"
    settings = f"settings {result.settings}"
    report = write_comparison(result.folder, title, result.arms, settings)
    return replace(result, report=report)


def _markdown_page(result: SweepResult, compared: Sequence[Difference]) -> str:
    """Return table.md: the table, and below it what helps to read it."""
    table = result.table
    page = f"{result.caption}\n\n{markdown(table.texts(), table.header)}"
    pivoted = pivot(result.arms)
    if pivoted:
        grid = markdown(pivoted.texts(), pivoted.header)
        page += f"\nAfter the last round:\n\n{grid}"
    if compared:
        rows = [difference.cells() for difference in compared]
        page += f"\n{PAIRED}\n\n{markdown(rows, DIFFERENCES)}"
    if result.chosen:
        page += f"\nWith:\n\n{markdown(result.chosen, ('method', 'settings'))}"
    if result.collapsed:
        page += f"\n{result.collapsed}\n"
    if result.privacy:
        page += f"\n{result.privacy}\n"
    return page


def _latex_tables(result: SweepResult) -> str:
    """Return table.tex: the table, and where two settings vary one by them."""
    folder = result.folder.absolute().name.lower()
    label = "tab:" + re.sub(r"[^a-z0-9]+", "-", folder).strip("-")
    notes = [f"{method}: {settings}." for method, settings in result.chosen]
    if result.privacy_line:
        notes.append(f"Privacy: {result.privacy_line}.")
    small_print = " ".join(notes)
    tex = latex(result.table, result.caption, small_print, label)
    pivoted = pivot(result.arms)
    if pivoted:
        caption = f"{result.caption} After the last round."
        tex += "\n" + latex(pivoted, caption, small_print, f"{label}-pivot")
    return tex


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
        jobs: The number of parallel runs, each in its own process; a single job runs
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
    on_progress(SweepProgress(done, len(runs)))
    for ended, error in execute(missing, jobs, threads, on_progress, cache):
        done += 1
        accuracy = None
        if error:
            failures.append(FailedRun(ended, error))
        elif result := finished(ended):
            accuracy = result.accuracy
        on_progress(SweepProgress(done, len(runs), ended.label, accuracy))
    return replace(read_sweep(sweep, folder), failures=tuple(failures))


def execute(
    runs: Sequence[PlannedRun],
    jobs: int,
    threads: int,
    on_progress: OnProgress,
    cache: Path | None = None,
) -> Iterator[tuple[PlannedRun, TaskError | None]]:
    """Yield each run as it ends, with its error if it failed."""
    by_folder = {str(run.folder): run for run in runs}

    def on_task_progress(task: PoolTask, event: ProgressEvent) -> None:
        label = task.name
        if task.name in by_folder:
            label = by_folder[task.name].label
        on_progress(replace(event, run=label))

    tasks = _tasks(runs, cache, shared=jobs > 1)
    for task, error in run_tasks(tasks, jobs, threads, on_task_progress):
        # Extractors are tasks of their own. One that fails fails the runs that need it.
        if task.name not in by_folder:
            continue
        ended = by_folder[task.name]
        if error:
            error = _with_details(ended, error)
        yield ended, error


def read_sweep(sweep: Sweep, folder: Path) -> SweepResult:
    """Read the finished runs of a sweep from its folder; nothing is run."""
    arms = []
    for arm in sweep.arms:
        results = [finished(run) for run in sweep.runs_of(arm, folder)]
        complete = [result for result in results if result is not None]
        if complete:
            arms.append(_arm_result(arm, complete))
    return SweepResult(sweep, folder, tuple(arms))


def _arm_result(arm: Arm, results: Sequence[FinishedRun]) -> ArmResult:
    """Put the finished runs of an arm together; there is at least one."""
    privacy = ""
    privacy_line = ""
    if arm.config.releases or arm.config.privacy.private_training:
        privacy = results[0].statement
        privacy_line = results[0].ledger.summary()
    metrics = [round_metrics(result, len(result.curve)) for result in results]
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
        metrics=tuple(metrics),
    )


def finished(run: PlannedRun) -> FinishedRun | None:
    """Return a run's result; None if it has yet to be run, which will also report what
    is wrong with its folder.
    """
    try:
        state = stored_state(run.config, run.folder)
    except StateError:
        return None
    if state is None or state.round < run.rounds:
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
                extractors[key] = PoolTask(name, partial(pretrain, config, cache=cache))
            needs.add(extractors[key].name)
        call = partial(
            run, planned.config, planned.folder, cache=cache, until=planned.until
        )
        tasks.append(PoolTask(str(planned.folder), call, frozenset(needs)))
    return [*extractors.values(), *tasks]


def _to_pretrain(run: PlannedRun) -> tuple[PrototypeSpec, ...]:
    """Return the prototypes whose extractors a run needs; one that has begun has
    them.
    """
    if (run.folder / STATE_FILE).is_file() or run.config.pretrain.epochs == 0:
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
    """An unexpected error leaves its traceback beside the run."""
    if error.code is not Exit.BUG:
        return error
    path = run.folder / "error.txt"
    write_atomically(path, error.details.encode())
    return replace(
        error,
        text=f"this should not have happened ({error.text}). Please report it with {path}",
    )
