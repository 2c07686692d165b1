"""Tables of text, as plain text, Markdown, CSV and LaTeX; pages and terminals draw the
same table.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import markupsafe

MISSING = "–"  # a cell where nothing was measured
_LATEX = {
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "α": r"$\alpha$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


@dataclass(frozen=True)
class Table:
    """Rows of text below a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    # of each cell after the first of its row: whether it is bold
    best: Sequence[Sequence[bool]] = ()

    def is_best(self, row: int, column: int) -> bool:
        if not self.best or column == 0:
            return False
        cells = self.best[row]
        return column <= len(cells) and cells[column - 1]

    def __html__(self) -> str:
        """HTML for pages and notebooks. Whatever others wrote is escaped."""
        header = "".join(f"<th>{markupsafe.escape(name)}</th>" for name in self.header)
        body = ""
        for i, row in enumerate(self.rows):
            cells = [self._html_cell(i, j, cell) for j, cell in enumerate(row)]
            body += f"<tr>{''.join(cells)}</tr>"
        return (
            f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>{body}</tbody></table>"
        )

    def _html_cell(self, i: int, j: int, cell: str) -> str:
        kind = ' class="best"' if self.is_best(i, j) else ""
        return f"<td{kind}>{markupsafe.escape(cell)}</td>"

    def __str__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = (map(str.ljust, line, widths) for line in lines)
        return "\n".join("  ".join(cells).rstrip() for cells in padded)


def markdown(rows: Iterable[Sequence[str]], header: Sequence[str]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"{_markdown_line(cells)}\n" for cells in lines)


def _markdown_line(cells: Sequence[str]) -> str:
    escaped = [cell.replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def latex(table: Table, caption: str, notes: str = "", label: str = "") -> str:
    """Format a table of numbers for `\\usepackage{booktabs}`; notes are in small
    print.
    """
    columns = "l" + "c" * (len(table.header) - 1)
    lines = [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{escape(caption)}}}",
    ]
    if label:
        lines.append(f"\\label{{{label}}}")
    lines += [f"\\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines.append(" & ".join(map(escape, table.header)) + r" \\")
    lines.append(r"\midrule")
    for i, (name, *numbers) in enumerate(table.rows):
        cells = [escape(name)]
        for j, number in enumerate(numbers, 1):
            cells.append(_latex_number(number, table.is_best(i, j)))
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if notes:
        lines += [r"\par\smallskip", f"{{\\footnotesize {escape(notes)}\\par}}"]
    lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


def escape(words: str) -> str:
    """Text that LaTeX sets as it stands."""
    escaped = "".join(_LATEX.get(char, char) for char in words)
    return escaped.replace("\n\n", r"\par ")


def _latex_number(number: str, bold: bool) -> str:
    if number == MISSING:
        return "--"
    formula = number.replace("±", r"\pm")
    return f"$\\mathbf{{{formula}}}$" if bold else f"${formula}$"


def to_csv(lines: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()
