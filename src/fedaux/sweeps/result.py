"""The result of a sweep: an `ArmResult` for every arm and the runs that failed, and the files made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.config.methods import find_method
from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically
from fedaux.report.arms import ArmResult
from fedaux.report.comparison_page import write_comparison
from fedaux.report.statistics import HEADER as DIFFERENCES
from fedaux.report.statistics import differences, differences_csv
from fedaux.report.tables import SPREAD, Table, latex, markdown, pivot, runs_csv, summary, summary_csv, tasks
from fedaux.report.terminal import plural
from fedaux.sweeps.arms import SYMBOLS, describe
from fedaux.sweeps.grid import Run, Sweep
from fedaux.sweeps.workers import TaskError

PAIRED = "Against the best arm on the same problem, paired by seed; p by Student's t, corrected by Holm:"


class SweepError(FedauxError):
    """Runs that failed while others continued; its code is that of the first."""

    def __init__(self, text: str, code: Exit) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class FailedRun:
    run: Run
    error: TaskError


@dataclass(frozen=True, eq=False)
class SweepResult:
    """Arms with at least one finished run, and runs that failed."""

    sweep: Sweep
    folder: Path
    arms: tuple[ArmResult, ...]
    failures: tuple[FailedRun, ...] = ()
    report: Path | None = None  # the page, once it is written

    def __repr__(self) -> str:
        return f"{self.table}\n{self.folder}"

    def _repr_html_(self) -> str:
        """For Jupyter."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.table.header)
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.table.texts())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    @property
    def curves(self) -> dict[str, NDArray[np.float64]]:
        """By label, (seeds, rounds)."""
        return {arm.label: arm.curves for arm in self.arms}

    @property
    def accuracy(self) -> dict[str, float]:
        """By label, after the last round, the mean over seeds."""
        return {arm.label: float(arm.curves[:, -1].mean()) for arm in self.arms}

    @property
    def table(self) -> Table:
        """Accuracy of every arm."""
        return summary(self.curves, "method" if list(self.sweep.axes) in ([], ["method"]) else "arm", tasks(self.arms))

    @property
    def caption(self) -> str:
        """What all arms have in common; what varies stands in the table."""
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
        return (
            f"{title}{what} accuracy in %: {common}, {plural(sweep.seeds, 'seed')}.{spread} Settings: {self.settings}."
        )

    @property
    def settings(self) -> str:
        """Which settings the methods have: tuned, of a preset, or those of the config."""
        return self.sweep.chosen.note(self.sweep.base, list(self.sweep.axes))

    @property
    def chosen(self) -> list[tuple[str, str]]:
        """(method, its settings) where they are not those of the config."""
        methods = dict.fromkeys(arm.config.method for arm in self.sweep.arms)
        found = {find_method(name).label: self.sweep.chosen.of(name) for name in methods}
        return [(label, describe(settings)) for label, settings in found.items() if settings]

    @property
    def privacy(self) -> str:
        """The one statement of all arms that release anything; several, each with its arms, where they differ."""
        labels: dict[str, list[str]] = {}
        for arm in self.arms:
            if arm.privacy:
                labels.setdefault(arm.privacy, []).append(arm.label)
        if len(labels) == 1:
            return next(iter(labels))
        return "\n\n".join(f"{'; '.join(names)}: {statement}" for statement, names in labels.items())

    @property
    def collapsed(self) -> str:
        """Which arms ended with a model that is no result, in a sentence; "" for none."""
        names = [arm.label for arm in self.arms if arm.warning]
        return (
            f"Collapsed: {'; '.join(names)}. Models no better than the commonest class, or that give up classes; the "
            "report says which, and what to try first."
            if names
            else ""
        )

    def raise_failures(self) -> None:
        """Raise `SweepError` if a run failed."""
        raise_failures(self.failures, len(self.sweep.runs(self.folder)), self.folder)

    def to_dict(self) -> dict[str, Any]:
        failures = [
            {"label": one.run.label, "code": int(one.error.code), "error": one.error.text} for one in self.failures
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
    """One error for runs that failed, if any did, with the first few reasons."""
    if not failures:
        return
    shown = " ".join(f"{one.run.label}: {one.error.text.rstrip('.')}." for one in failures[:3])
    more = f" (the first 3 of {len(failures)})" if len(failures) > 3 else ""
    raise SweepError(
        f"{len(failures)} of {total} runs failed{more}. {shown} What the others have is kept in {folder}; "
        "the same command continues with what is missing.",
        failures[0].error.code,
    )


def _slug(folder: Path) -> str:
    """For `\\label`."""
    return re.sub(r"[^a-z0-9]+", "-", folder.absolute().name.lower()).strip("-")


def write_results(result: SweepResult) -> SweepResult:
    """report.html with its charts, table.md, table.csv, table.tex, runs.csv and sweep.json in the sweep's folder."""
    if not result.arms:
        result.raise_failures()  # there is nothing else to show
    table, caption, pivoted = result.table, result.caption, pivot(result.arms)
    notes = "\n\n".join(
        [*(f"{label}: {settings}." for label, settings in result.chosen), *filter(None, [result.privacy])]
    )
    text, tex = (
        f"{caption}\n\n{markdown(table.texts(), table.header)}",
        latex(table, caption, notes, f"tab:{_slug(result.folder)}"),
    )
    if pivoted:
        text += f"\nAfter the last round:\n\n{markdown(pivoted.texts(), pivoted.header)}"
        tex += "\n" + latex(pivoted, f"{caption} After the last round.", notes, f"tab:{_slug(result.folder)}-pivot")
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
    return replace(result, report=write_comparison(result.folder, title, result.arms, f"settings {result.settings}"))
