"""An exported model on labelled records, as tables and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedaux.core.metrics import METRIC_NAMES, Evaluation
from fedaux.export.evaluation import ModelEvaluation
from fedaux.export.model import Model
from fedaux.report.classes_section import class_figures
from fedaux.report.page import HtmlTable, Section, Tile, write_page

MAX_WRONG = 100  # wrong answers that a page lists


FIGURES, SITES = ("figure", "%"), ("site", "records", "accuracy", "balanced", "commonest")


def figure_rows(one: Evaluation) -> list[tuple[str, str]]:
    """Every figure of all records, in per cent."""
    values = {"accuracy": one.accuracy, **{METRIC_NAMES[name]: value for name, value in one.summary().items()}}
    return [(name, f"{100 * value:.1f}") for name, value in values.items()]


def site_rows(sites: Mapping[str, Evaluation]) -> list[tuple[str, ...]]:
    """Of each site: records, accuracy, balanced accuracy, and the accuracy of always answering the commonest class."""
    return [
        (name, f"{int(one.table.sum()):,}", *(f"{100 * value:.1f}" for value in _main_figures(one)))
        for name, one in sites.items()
    ]


def _main_figures(one: Evaluation) -> tuple[float, float, float]:
    return one.accuracy, one.balanced_accuracy, one.majority


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
    total = found.total
    warning = total.collapse(classes)
    tiles = [
        Tile(f"{100 * total.balanced_accuracy:.1f} %", "balanced accuracy", warn=bool(warning)),
        Tile(f"{100 * total.accuracy:.1f} %", "accuracy"),
        Tile(f"{100 * total.majority:.1f} %", "accuracy of always answering the commonest class"),
        Tile(f"{int(total.table.sum()):,}", "labelled records"),
        *([Tile(str(len(found.skipped)), "files could not be read", warn=True)] if found.skipped else []),
    ]
    sections = [
        Section("figures", "Figures", table=HtmlTable(FIGURES, figure_rows(total))),
        Section("classes", "Classes", "", class_figures(total, classes)),
    ]
    if found.sites:
        text = "In %; the last column is the accuracy of always answering the commonest class of a site."
        sections.append(Section("sites", "Sites", text, table=HtmlTable(SITES, site_rows(found.sites))))
    if found.wrong:
        text = f"{len(found.wrong)} in all" + (f", the first {MAX_WRONG}." if len(found.wrong) > MAX_WRONG else ".")
        table = HtmlTable(("input", "its class", "the answer"), found.wrong[:MAX_WRONG])
        sections.append(Section("wrong", "Wrong answers", text, table=table))
    return write_page(
        path, title, "an exported model on labelled records", tiles, sections, warnings=[warning] if warning else []
    )
