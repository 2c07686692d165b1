"""What came out of a sweep: its tables, sentences for readers, and the files of its
folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.method_facts import reason
from fedaux.config.methods import find_method
from fedaux.core import here
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically
from fedaux.report.arm_tables import (
    SPREAD,
    pivot,
    runs_csv,
    summary,
    summary_csv,
    tasks,
)
from fedaux.report.arms import ArmResult
from fedaux.report.comparison_page import write_comparison
from fedaux.report.run_page import data_name
from fedaux.report.statistics import (
    FEWEST_SEEDS,
    Difference,
    close_to_best,
    differences,
    differences_csv,
)
from fedaux.report.statistics import HEADER as DIFFERENCES
from fedaux.report.tables import Table, latex, markdown
from fedaux.report.terminal import plural
from fedaux.sweeps.grid import SYMBOLS, PlannedRun, Sweep, describe_settings
from fedaux.sweeps.workers import TaskError

PAIRED = (
    "Against the best arm on the same problem, paired by seed, with p by Student's t, "
    "corrected by Holm:"
)


class SweepError(FedauxError):
    """Some runs failed while others continued. The exit code is that of the first
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
        sweep: The grid that was run.
        folder: The folder of its runs.
        arms: The arms with at least one finished run.
        failures: The runs that failed.
        report: The report's page, or None until `write_results` has written it.
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
        return self.table.__html__()

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
        starts = {arm.label: arm.starts for arm in self.arms}
        return summary(self.curves, name, tasks(self.arms), starts)

    @property
    def caption(self) -> str:
        """The settings that all arms share. Those that vary are in the table."""
        base = self.sweep.base
        settings = {
            "data.source": data_name(base),
            "data.clients": plural(base.data.clients, "client"),
            "data.alpha": f"{SYMBOLS['data.alpha']} = {base.data.alpha:g}",
            "prototypes": here.readable(
                ", ".join(spec.label for spec in base.prototypes)
            ),
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
        """Pairs of method and settings, for methods whose settings differ from
        the config's.
        """
        pairs = []
        for method in dict.fromkeys(arm.config.method for arm in self.sweep.arms):
            settings = self.sweep.chosen.of(method)
            if settings:
                pairs.append((find_method(method).label, describe_settings(settings)))
        return pairs

    @property
    def privacy(self) -> str:
        """The privacy statement of the arms that release anything. If they differ, each
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
        """The winner and the reason in plain words, or that these seeds name no winner, or "" where
        not methods are compared.
        """
        if list(self.sweep.axes) != ["method"] or len(self.arms) < 2:
            return ""
        sentences = [self._judge(self.arms)]
        # A computed head may be first, and the best that trains is then named as well.
        trained = [
            arm for arm in self.arms if not find_method(arm.settings["method"]).analytic
        ]
        if trained and _best(trained) is not _best(self.arms):
            sentences.append(self._judge(trained, " of the methods that train"))
        return " ".join(sentences)

    def _judge(self, arms: Sequence[ArmResult], among: str = "") -> str:
        """Name the best of these arms, as a winner only if chance does not explain its
        lead.
        """
        best = _best(arms)
        why = reason(find_method(best.settings["method"]))
        accuracy = f"{100 * best.mean_accuracy:.1f} %"
        close = close_to_best(arms)
        seeds = plural(len(best.seeds), "seed")
        if len(best.seeds) < FEWEST_SEEDS and len(arms) > 1:
            return (
                f"{best.label} is ahead{among} with {accuracy}, and {seeds} cannot "
                f"name a winner (--seeds {FEWEST_SEEDS} can): {why}."
            )
        if close:
            rivals = ", ".join(
                f"{arm.label} ({100 * arm.mean_accuracy:.1f} %)" for arm in close
            )
            return (
                f"No winner{among}: {seeds} cannot tell {best.label} ({accuracy}) from "
                f"{rivals}."
            )
        return f"{best.label} has the highest accuracy{among}, {accuracy}: {why}."

    @property
    def collapsed(self) -> str:
        """A sentence that names the arms whose model collapsed, or "" for none."""
        names = [arm.label for arm in self.arms if arm.warning]
        if not names:
            return ""
        return (
            "No better than always answering one class, or without some classes: "
            f"{'; '.join(names)}. The report says which, and what to try first."
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


def _best(arms: Sequence[ArmResult]) -> ArmResult:
    return max(arms, key=lambda arm: arm.mean_accuracy)


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
        f"Cannot finish: {len(failures)} of {total} runs failed{more}. {shown} What "
        f"the others have is kept in {folder}. Run the same command again: it "
        "continues with what is missing.",
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
        "table.tex": latex_tables(result),
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
    report = write_comparison(
        result.folder, title, result.arms, settings, verdict=result.verdict
    )
    return replace(result, report=report)


def _markdown_page(result: SweepResult, compared: Sequence[Difference]) -> str:
    """Return table.md: the table, and below it what helps to read it."""
    table = result.table
    page = f"{result.caption}\n\n{markdown(table.rows, table.header)}"
    pivoted = pivot(result.arms)
    if pivoted:
        grid = markdown(pivoted.rows, pivoted.header)
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


def latex_tables(result: SweepResult) -> str:
    """Return table.tex: the table, and where two settings vary one by them."""
    name = result.sweep.title or result.folder.absolute().name
    label = "tab:" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
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
