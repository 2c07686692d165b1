"""The figures of several runs side by side, as tables and CSV.

A cell is a mean over seeds ± the sample standard deviation (n − 1): a handful of seeds
is a sample of all there could have been, and dividing by n would make it look steadier
than it is. CSV has shares of 1, tables have per cent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaux.report.arms import ArmResult, is_task, naming_settings
from fedaux.report.tables import MISSING, Table, to_csv

SPREAD = "± is the sample standard deviation over seeds (n − 1)."


@dataclass(frozen=True)
class Cell:
    """One figure over seeds, a share between 0 and 1. `std` is unknown with a single
    seed.
    """

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Cell:
        std = float(values.std(ddof=1)) if len(values) > 1 else None
        return cls(float(values.mean()), std, len(values))

    def __str__(self) -> str:
        mean = f"{100 * self.mean:.1f}"
        return mean if self.std is None else f"{mean} ± {100 * self.std:.1f}"


Cells = Sequence[Cell | None]  # None where nothing was measured


class KeyFigures(NamedTuple):
    """Key figures of curves over seeds. The best round is for reference only: test
    labels would have to choose it.
    """

    first: Cell
    last: Cell
    last5: Cell
    best: Cell

    @classmethod
    def of(cls, curves: NDArray[np.float64]) -> KeyFigures:
        """Compute the figures from curves, (seeds, rounds)."""
        first = Cell.of(curves[:, 0])
        last = Cell.of(curves[:, -1])
        last5 = Cell.of(curves[:, -5:].mean(axis=1))
        best = Cell.of(curves.max(axis=1))
        return cls(first, last, last5, best)


def summary(
    curves: Mapping[str, NDArray[np.float64]],
    first: str = "method",
    tasks: Mapping[str, str] | None = None,
    starts: Mapping[str, Sequence[float]] | None = None,
) -> Table:
    """One row per method from its curves, (seeds, rounds). Rows of different `tasks`,
    by label, do not compete. `starts` has the accuracy of each seed before round 1, if
    it was measured; the table then has a column for round 0.
    """
    rounds = min((values.shape[1] for values in curves.values()), default=0)
    header = (
        first,
        "round 1",
        "last round",
        f"mean of last {min(rounds, 5)}",
        "best (reference)",
    )
    figures = {label: KeyFigures.of(values) for label, values in curves.items()}
    rivals: dict[str, list[str]] = {}
    for label in curves:
        problem = tasks.get(label, "") if tasks else ""
        rivals.setdefault(problem, []).append(label)
    best: dict[str, list[bool]] = {}
    for labels in rivals.values():
        bold = _best_of_columns([figures[label] for label in labels])
        best.update(zip(labels, bold, strict=True))
    rows = [_row(label, cells) for label, cells in figures.items()]
    table = Table(header, rows, [best[label] for label in curves])
    if not starts or not any(starts.values()):
        return table
    return _with_start(table, [starts.get(label, ()) for label in curves])


def _with_start(table: Table, starts: Iterable[Sequence[float]]) -> Table:
    """Add a column for round 0, in which nothing competes: methods that continue from
    the same head start equally well.
    """
    label, *columns = table.header
    rows = []
    for start, (name, *cells) in zip(starts, table.rows, strict=True):
        before = str(Cell.of(np.array(start))) if start else MISSING
        rows.append((name, before, *cells))
    best = [[False, *row] for row in table.best]
    return Table((label, "round 0", *columns), rows, best)


def pivot(arms: Sequence[ArmResult]) -> Table | None:
    """Tabulate two settings that vary: one in rows (the method, if it varies), the
    other in columns, else None.
    """
    settings = naming_settings(arms)
    if len(settings) != 2:
        return None
    row_setting, column_setting = settings
    names = list(dict.fromkeys(arm.labels[row_setting] for arm in arms))
    columns = list(dict.fromkeys(arm.labels[column_setting] for arm in arms))
    measured: dict[tuple[str, str], Cell] = {}
    for arm in arms:
        place = (arm.labels[row_setting], arm.labels[column_setting])
        measured[place] = KeyFigures.of(arm.curves).last
    body: list[Cells] = [
        [measured.get((name, column)) for column in columns] for name in names
    ]
    # what competes: the arms of one problem, in whichever direction they stand
    if is_task(row_setting) and not is_task(column_setting):
        best = [_best(cells) for cells in body]
    else:
        best = _best_of_columns(body)
    rows = [_row(name, cells) for name, cells in zip(names, body, strict=True)]
    return Table((row_setting, *columns), rows, best)


def tasks(arms: Sequence[ArmResult]) -> dict[str, str]:
    """Return the problem that each arm is measured on, by label."""
    problems: dict[str, str] = {}
    for arm in arms:
        values = [value for key, value in arm.settings.items() if is_task(key)]
        problems[arm.label] = str(values)
    return problems


def summary_csv(arms: Sequence[ArmResult]) -> str:
    """One line per arm: settings, number of seeds, mean and std of all figures and
    metrics, of the start where there is one, privacy statement.
    """
    metrics = _metric_names(arms)
    has_start = any(arm.starts for arm in arms)
    columns: list[str] = []
    for figure in (*KeyFigures._fields, *metrics, *["start"] * has_start):
        columns += [f"{figure}_mean", f"{figure}_std"]
    header = ["label", *_setting_names(arms), "n", *columns, "privacy"]
    lines: list[list[Any]] = [header]
    for arm in arms:
        numbers: list[Any] = []
        for cell in KeyFigures.of(arm.curves):
            numbers += [cell.mean, cell.std]
        for name in metrics:
            numbers += _last_metric(arm, name)
        if has_start:
            numbers += _start(arm)
        settings = arm.settings.values()
        lines.append([arm.label, *settings, len(arm.seeds), *numbers, arm.privacy])
    return to_csv(lines)


def runs_csv(arms: Sequence[ArmResult]) -> str:
    """The long form: one line per run and round; round 0 is the start."""
    metrics = _metric_names(arms)
    header = ["label", *_setting_names(arms), "seed", "round", "accuracy", *metrics]
    lines: list[list[Any]] = [header]
    for arm in arms:
        for i, seed in enumerate(arm.seeds):
            run = [arm.label, *arm.settings.values(), seed]
            if arm.starts:
                lines.append([*run, 0, arm.starts[i], *[""] * len(metrics)])
            for j, accuracy in enumerate(arm.curves[i].tolist()):
                measured = arm.metrics[i][j] if arm.metrics else {}
                values = [measured.get(name, "") for name in metrics]
                lines.append([*run, j + 1, accuracy, *values])
    return to_csv(lines)


def _row(label: str, cells: Cells) -> tuple[str, ...]:
    texts = [MISSING if cell is None else str(cell) for cell in cells]
    return (label, *texts)


def _best(rivals: Cells) -> list[bool]:
    """Return for each cell whether no other has a higher mean."""
    means = [cell.mean for cell in rivals if cell is not None]
    highest = max(means, default=0.0)
    return [cell is not None and cell.mean == highest for cell in rivals]


def _best_of_columns(rows: Iterable[Cells]) -> list[list[bool]]:
    columns = [_best(column) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def _last_metric(arm: ArmResult, name: str) -> list[Any]:
    """Mean and std over the seeds that have this metric."""
    last = [rounds[-1] for rounds in arm.metrics if rounds]
    values = [metrics[name] for metrics in last if name in metrics]
    if not values:
        return ["", ""]
    cell = Cell.of(np.array(values))
    return [cell.mean, cell.std]


def _start(arm: ArmResult) -> list[Any]:
    """Mean and std of the accuracy before round 1."""
    if not arm.starts:
        return ["", ""]
    cell = Cell.of(np.array(arm.starts))
    return [cell.mean, cell.std]


def _metric_names(arms: Sequence[ArmResult]) -> list[str]:
    """The metrics next to accuracy that any run has."""
    names: dict[str, None] = {}
    for arm in arms:
        for rounds in arm.metrics:
            for metrics in rounds:
                names.update(dict.fromkeys(metrics))
    return list(names)


def _setting_names(arms: Sequence[ArmResult]) -> list[str]:
    return list(arms[0].settings) if arms else []
