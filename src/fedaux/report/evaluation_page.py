"""An exported model on labelled records, as tables and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedaux.core.metrics import METRIC_NAMES, Evaluation
from fedaux.export.evaluation import ModelEvaluation
from fedaux.export.model import Model
from fedaux.report.classes_section import class_figures
from fedaux.report.page import HtmlTable, Section, Tile, write_page

MAX_WRONG = 100  # wrong answers that a page lists


def figure_rows(found: ModelEvaluation) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(header, rows): all records, then each site."""
    parts: dict[str, Evaluation] = {"all" if found.sites else "": found.total, **found.sites}
    names = [name for name in METRIC_NAMES if any(name in one.summary() for one in parts.values())]
    rows = [
        (
            label,
            f"{int(one.table.sum()):,}",
            f"{100 * one.accuracy:.1f}",
            *(f"{100 * one.summary()[name]:.1f}" if name in one.summary() else "–" for name in names),
        )
        for label, one in parts.items()
    ]
    return ("site" if found.sites else "", "records", "accuracy", *(METRIC_NAMES[name] for name in names)), rows


def recall_rows(found: ModelEvaluation, model: Model) -> list[tuple[str, ...]]:
    """Class, records, recall and its interval; classes without records are left out."""
    return [
        (name, f"{one.records:,}", f"{100 * one.recall:.1f}", f"{100 * one.low:.1f} to {100 * one.high:.1f}")
        for label, name in enumerate(model.classes)
        if found.total.counts[label]
        for one in [found.total.of_class(label)]
    ]


def write_evaluation_page(path: Path, title: str, classes: Sequence[str], found: ModelEvaluation) -> Path:
    """Figures, recalls, confusion, sites and the first wrong answers on one page."""
    total, (head, rows) = found.total, figure_rows(found)
    warning = total.collapse(classes)
    tiles = [
        Tile(f"{100 * total.balanced_accuracy:.1f} %", "balanced accuracy", warn=bool(warning)),
        Tile(f"{100 * total.accuracy:.1f} %", "accuracy"),
        Tile(f"{100 * total.majority:.1f} %", "accuracy of always answering the commonest class"),
        Tile(f"{int(total.table.sum()):,}", "labelled records"),
        *([Tile(str(len(found.skipped)), "files could not be read", warn=True)] if found.skipped else []),
    ]
    sections = [
        Section("figures", "Figures", "In %.", table=HtmlTable(head, rows)),
        Section("classes", "Classes", "", class_figures(total, classes)),
    ]
    if found.wrong:
        text = f"{len(found.wrong)} in all" + (f", the first {MAX_WRONG}." if len(found.wrong) > MAX_WRONG else ".")
        table = HtmlTable(("input", "its class", "the answer"), found.wrong[:MAX_WRONG])
        sections.append(Section("wrong", "Wrong answers", text, table=table))
    return write_page(
        path, title, "an exported model on labelled records", tiles, sections, warnings=[warning] if warning else []
    )
