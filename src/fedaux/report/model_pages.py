"""Pages about a model: how its extractor was pre-trained, and how it does on labelled
records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedaux.core.metrics import METRIC_NAMES, Evaluation
from fedaux.report.charts import Bars, Heat, Line, LineChart
from fedaux.report.page import Figure, HtmlTable, Section, Tile, write_page

if TYPE_CHECKING:
    from fedaux.export.evaluation import ModelEvaluation

MAX_LISTED = 40  # clients or classes that a page lists one by one
MAX_WRONG = 100  # wrong answers that a page lists
FIGURES, SITES = (
    ("figure", "%"),
    ("site", "records", "accuracy", "balanced", "commonest"),
)


def write_pretraining_page(
    path: Path, prototype: str, curve: Sequence[Mapping[str, Any]]
) -> Path:
    """Loss and label-free quality of the features over the epochs in an extractor's
    card.
    """
    series = {"loss": [epoch["loss"] for epoch in curve]}
    series |= {
        name: [epoch["quality"][name] for epoch in curve]
        for name in ("alignment", "uniformity", "rank")
    }
    tiles = [
        Tile(f"{values[-1]:.3g}", f"{name} after {len(curve)} epochs")
        for name, values in series.items()
    ]
    sections = [
        Section(
            name,
            name.capitalize(),
            figures=[
                Figure(LineChart([Line("", values)], "epoch", name, height=220.0))
            ],
        )
        for name, values in series.items()
    ]
    return write_page(path, "Pre-training", prototype, tiles, sections)


def write_evaluation_page(
    path: Path, title: str, classes: Sequence[str], found: ModelEvaluation
) -> Path:
    """Figures, recalls, confusion, sites and the first wrong answers of an exported
    model.
    """
    total = found.total
    warning = total.collapse(classes)
    tiles = [
        Tile(
            f"{100 * total.balanced_accuracy:.1f} %",
            "balanced accuracy",
            warn=bool(warning),
        ),
        Tile(f"{100 * total.accuracy:.1f} %", "accuracy"),
        Tile(
            f"{100 * total.majority:.1f} %",
            "accuracy of always answering the commonest class",
        ),
        Tile(f"{int(total.table.sum()):,}", "labelled records"),
        *(
            [Tile(str(len(found.skipped)), "files could not be read", warn=True)]
            if found.skipped
            else []
        ),
    ]
    sections = [
        Section("figures", "Figures", table=HtmlTable(FIGURES, figure_rows(total))),
        Section("classes", "Classes", "", class_figures(total, classes)),
    ]
    if found.sites:
        text = "In %; the last column is the accuracy of always answering the commonest class of a site."
        sections.append(
            Section(
                "sites", "Sites", text, table=HtmlTable(SITES, site_rows(found.sites))
            )
        )
    if found.wrong:
        text = f"{len(found.wrong)} in all" + (
            f", the first {MAX_WRONG}." if len(found.wrong) > MAX_WRONG else "."
        )
        table = HtmlTable(("input", "its class", "the answer"), found.wrong[:MAX_WRONG])
        sections.append(Section("wrong", "Wrong answers", text, table=table))
    subtitle = "an exported model on labelled records"
    return write_page(
        path, title, subtitle, tiles, sections, warnings=[warning] if warning else []
    )


def figure_rows(one: Evaluation) -> list[tuple[str, str]]:
    """Every figure of all records, in per cent."""
    values = {
        "accuracy": one.accuracy,
        **{METRIC_NAMES[name]: value for name, value in one.summary().items()},
    }
    return [(name, f"{100 * value:.1f}") for name, value in values.items()]


def site_rows(sites: Mapping[str, Evaluation]) -> list[tuple[str, ...]]:
    """Return for each site its records, accuracy, balanced accuracy, and the accuracy
    of predicting the majority.
    """
    figures = {
        name: (one.accuracy, one.balanced_accuracy, one.majority)
        for name, one in sites.items()
    }
    return [
        (
            name,
            f"{int(one.table.sum()):,}",
            *(f"{100 * value:.1f}" for value in figures[name]),
        )
        for name, one in sites.items()
    ]


def recall_rows(total: Evaluation, classes: Sequence[str]) -> list[tuple[str, ...]]:
    """Class, records, recall and its interval; classes without records are left out."""
    found = (
        (name, total.of_class(label))
        for label, name in enumerate(classes)
        if total.counts[label]
    )
    return [
        (
            name,
            f"{one.records:,}",
            f"{100 * one.recall:.1f}",
            f"{100 * one.low:.1f} to {100 * one.high:.1f}",
        )
        for name, one in found
    ]


def class_figures(evaluation: Evaluation, classes: Sequence[str]) -> list[Figure]:
    """Recalls with intervals, and the confusion of up to a hundred classes."""
    table, tested = evaluation.table, evaluation.counts
    with np.errstate(invalid="ignore"):
        shares = table / table.sum(axis=1, keepdims=True)
    rows = [_class_row(name, evaluation, label) for label, name in enumerate(classes)]
    worst = (
        sorted(rows, key=lambda row: row[1])[:MAX_LISTED]
        if len(rows) > MAX_LISTED
        else rows
    )
    caption = f"Recall of each class, with a 95 % interval; {tested.min():,} to {tested.max():,} test records of each."
    more = f" The worst {MAX_LISTED}." if len(rows) > MAX_LISTED else ""
    figures = [Figure(Bars(worst), caption + more)]
    if len(rows) <= 100:
        caption = "Confusion: of the test records of a class (row), the share taken for each class (column), in %."
        chart = Heat(shares, classes, classes, "true class", "predicted class")
        figures.append(Figure(chart, caption, file="confusion"))
    return figures


def _class_row(name: str, evaluation: Evaluation, label: int) -> tuple[str, float, str]:
    if evaluation.counts[label] == 0:
        return name, 0.0, "not tested"
    one = evaluation.of_class(label)
    return (
        name,
        one.recall,
        f"{100 * one.recall:.1f} % ({100 * one.low:.0f}–{100 * one.high:.0f})",
    )
