"""The figures of several runs side by side, as text, Markdown, CSV and LaTeX.

A cell is a mean over seeds ± the sample standard deviation (n − 1): a handful of seeds
is a sample of all there could have been, and dividing by n would make it look steadier
than it is. CSV has shares of 1, the others per cent.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaux.report.arms import ArmResult, is_task

SPREAD = "± is the sample standard deviation over seeds (n − 1)."
_LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    **{
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    },
    **{
        "α": r"$\alpha$",
        "ε": r"$\varepsilon$",
        "δ": r"$\delta$",
        "λ": r"$\lambda$",
        "μ": r"$\mu$",
    },
    **{
        "±": r"$\pm$",
        "−": "$-$",
        "×": r"$\times$",
        "|": r"\textbar{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
    },
}


@dataclass(frozen=True)
class Cell:
    """One figure over seeds, a share between 0 and 1; `std` is unknown with a single
    seed.
    """

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Cell:
        return cls(
            float(values.mean()),
            float(values.std(ddof=1)) if len(values) > 1 else None,
            len(values),
        )

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f}" + (
            "" if self.std is None else f" ± {100 * self.std:.1f}"
        )


@dataclass(frozen=True)
class Table:
    """Rows of cells below a header; None where nothing was measured."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    # of each cell: the best of a group is bold; without, a column is a group
    groups: tuple[tuple[str, ...], ...] = ()

    def texts(self) -> list[tuple[str, ...]]:
        return [
            (label, *("–" if cell is None else str(cell) for cell in cells))
            for label, cells in self.rows
        ]

    def __str__(self) -> str:
        lines = [self.header, *self.texts()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(map(str.ljust, line, widths)).rstrip() for line in lines
        )

    def best(self) -> list[list[bool]]:
        """Return for each cell whether no other cell of its group has a higher mean."""
        groups = self.groups or [[str(column) for column in range(self.columns)]] * len(
            self.rows
        )
        highest: dict[str, float] = {}
        for (_, cells), names in zip(self.rows, groups, strict=True):
            for cell, name in zip(cells, names, strict=True):
                highest[name] = max(
                    highest.get(name, -np.inf), -np.inf if cell is None else cell.mean
                )
        return [
            [
                cell is not None and cell.mean == highest[name]
                for cell, name in zip(cells, names, strict=True)
            ]
            for (_, cells), names in zip(self.rows, groups, strict=True)
        ]

    @property
    def columns(self) -> int:
        return len(self.header) - 1


class Figures(NamedTuple):
    """Key figures of curves over seeds. The best round is for reference only: test
    labels would have to choose it.
    """

    first: Cell
    last: Cell
    last5: Cell
    best: Cell

    @classmethod
    def of(cls, curves: NDArray[np.float64]) -> Figures:
        """Compute the figures from curves, (seeds, rounds)."""
        parts = (
            curves[:, 0],
            curves[:, -1],
            curves[:, -5:].mean(axis=1),
            curves.max(axis=1),
        )
        return cls(*map(Cell.of, parts))


def summary(
    curves: Mapping[str, NDArray[np.float64]],
    first: str = "method",
    tasks: Mapping[str, str] | None = None,
) -> Table:
    """One row per method from its curves, (seeds, rounds); rows of different `tasks`,
    by label, do not compete.
    """
    rounds = min((values.shape[1] for values in curves.values()), default=0)
    header = (
        first,
        "round 1",
        "last round",
        f"mean of last {min(rounds, 5)}",
        "best (reference)",
    )
    groups = tuple(
        tuple(f"{column} {(tasks or {}).get(label, '')}" for column in header[1:])
        for label in curves
    )
    return Table(
        header,
        tuple((label, Figures.of(values)) for label, values in curves.items()),
        groups,
    )


def pivot(arms: Sequence[ArmResult]) -> Table | None:
    """Tabulate two settings that vary: one in rows (the method, if it varies), the
    other in columns; else None.
    """
    keys = sorted(arms[0].labels, key=lambda key: key != "method") if arms else []
    if len(keys) != 2:
        return None
    cells = {
        tuple(arm.labels[key] for key in keys): Figures.of(arm.curves).last
        for arm in arms
    }
    rows, columns = (
        list(dict.fromkeys(arm.labels[key] for arm in arms)) for key in keys
    )
    body = tuple(
        (row, tuple(cells.get((row, column)) for column in columns)) for row in rows
    )
    # then what competes stands side by side
    across = is_task(keys[0]) and not is_task(keys[1])
    groups = tuple(
        tuple(row if across else column for column in columns) for row in rows
    )
    return Table((keys[0], *columns), body, groups)


def tasks(arms: Sequence[ArmResult]) -> dict[str, str]:
    """Return the problem that each arm is measured on, by label."""
    return {
        arm.label: str([arm.settings[key] for key in arm.settings if is_task(key)])
        for arm in arms
    }


def markdown(rows: Iterable[Sequence[str]], header: Sequence[str]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return (
        "\n".join(
            f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
            for cells in lines
        )
        + "\n"
    )


def latex(table: Table, caption: str, notes: str = "", label: str = "") -> str:
    """Format a table for `\\usepackage{booktabs}`; the best of comparable means is
    bold, notes are in small print.
    """
    lines = [
        " & ".join(
            [
                escape(name),
                *(_in_latex(cell, bold) for cell, bold in zip(cells, row, strict=True)),
            ]
        )
        + r" \\"
        for (name, cells), row in zip(table.rows, table.best(), strict=True)
    ]
    small = (
        [r"\par\smallskip", f"{{\\footnotesize {escape(notes)}\\par}}"] if notes else []
    )
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{escape(caption)}}}",
            *([f"\\label{{{label}}}"] if label else []),
            f"\\begin{{tabular}}{{l{'c' * table.columns}}}",
            r"\toprule",
            " & ".join(map(escape, table.header)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            *small,
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    """Text that LaTeX sets as it stands."""
    return "".join(_LATEX.get(char, char) for char in text).replace("\n\n", r"\par ")


def summary_csv(arms: Sequence[ArmResult]) -> str:
    """One line per arm: settings, number of seeds, mean and std of all figures and
    metrics, privacy statement.
    """
    figures, measured = Figures._fields, _metrics(arms)
    names = [
        f"{figure}_{part}"
        for figure in (*figures, *measured)
        for part in ("mean", "std")
    ]
    lines: list[list[Any]] = [["label", *_keys(arms), "n", *names, "privacy"]]
    for arm in arms:
        numbers: list[Any] = [
            part for cell in Figures.of(arm.curves) for part in (cell.mean, cell.std)
        ]
        for key in measured:
            values = [
                rounds[-1][key]
                for rounds in arm.metrics
                if rounds and key in rounds[-1]
            ]
            cell = Cell.of(np.array(values)) if values else None
            numbers += [cell.mean, cell.std] if cell else ["", ""]
        lines.append(
            [arm.label, *arm.settings.values(), len(arm.seeds), *numbers, arm.privacy]
        )
    return to_csv(lines)


def runs_csv(arms: Sequence[ArmResult]) -> str:
    """The long form: one line per run and round."""
    measured = _metrics(arms)
    lines: list[list[Any]] = [
        ["label", *_keys(arms), "seed", "round", "accuracy", *measured]
    ]
    for arm in arms:
        for place, (seed, curve) in enumerate(
            zip(arm.seeds, arm.curves.tolist(), strict=True)
        ):
            rounds = arm.metrics[place] if arm.metrics else ({},) * len(curve)
            lines += [
                [
                    arm.label,
                    *arm.settings.values(),
                    seed,
                    round_,
                    accuracy,
                    *(found.get(key, "") for key in measured),
                ]
                for round_, (accuracy, found) in enumerate(
                    zip(curve, rounds, strict=True), 1
                )
            ]
    return to_csv(lines)


def to_csv(lines: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()


def _metrics(arms: Sequence[ArmResult]) -> list[str]:
    """The metrics beside accuracy that any run has."""
    return list(
        dict.fromkeys(
            key
            for arm in arms
            for rounds in arm.metrics
            for found in rounds
            for key in found
        )
    )


def _keys(arms: Sequence[ArmResult]) -> list[str]:
    return list(arms[0].settings) if arms else []


def _in_latex(cell: Cell | None, bold: bool) -> str:
    if cell is None:
        return "--"
    text = str(cell).replace("±", r"\pm")
    return f"$\\mathbf{{{text}}}$" if bold else f"${text}$"
