"""Pages about a model: how its extractor was pre-trained, and how it does on labelled
records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedaux.core.binary_metrics import Calibration
from fedaux.core.metrics import METRIC_NAMES, Evaluation, format_percent
from fedaux.report.charts import Bars, Heat, Line, LineChart
from fedaux.report.page import Figure, Section, Tile, write_page
from fedaux.report.tables import Table

if TYPE_CHECKING:
    from fedaux.export.evaluation import ModelEvaluation

MAX_LISTED = 40  # clients or classes that a page lists one by one
MAX_WRONG = 100  # wrong answers that a page lists
MAX_CONFUSED = 100  # classes that a page shows the confusion of
FIGURES = ("figure", "%")
SITE_COLUMNS = ("site", "records", "accuracy", "balanced", "AUC", "commonest")


def write_pretraining_page(
    path: Path, prototype: str, curve: Sequence[Mapping[str, Any]]
) -> Path:
    """Loss and label-free quality of the features over the epochs in an extractor's
    card.
    """
    measures = {"loss": [epoch["loss"] for epoch in curve]}
    for name in ("alignment", "uniformity", "rank"):
        measures[name] = [epoch["quality"][name] for epoch in curve]
    tiles: list[Tile] = []
    sections: list[Section] = []
    for name, values in measures.items():
        tiles.append(Tile(f"{values[-1]:.3g}", f"{name} after {len(curve)} epochs"))
        chart = LineChart([Line("", values)], "epoch", name, height=220.0)
        sections.append(Section(name, name.capitalize(), figures=[Figure(chart)]))
    return write_page(path, "Pre-training", prototype, tiles, sections)


def write_evaluation_page(
    path: Path, title: str, classes: Sequence[str], evaluation: ModelEvaluation
) -> Path:
    """Figures, recalls, confusion, sites and the first wrong answers of an exported
    model.
    """
    total = evaluation.total
    warning = total.collapse(classes)
    figures = Table(FIGURES, figure_rows(total))
    sections = [
        Section("figures", "Figures", table=figures),
        Section("classes", "Classes", "", class_figures(total, classes)),
    ]
    if evaluation.sites:
        words = (
            "In %. The last column is the accuracy of always answering the commonest "
            "class of a site."
        )
        sites = Table(SITE_COLUMNS, site_rows(evaluation.sites))
        sections.append(Section("sites", "Sites", words, table=sites))
    if evaluation.wrong:
        words = f"{len(evaluation.wrong)} in all."
        if len(evaluation.wrong) > MAX_WRONG:
            words = f"{len(evaluation.wrong)} in all, the first {MAX_WRONG}."
        header = ("input", "its class", "the answer")
        wrong = Table(header, evaluation.wrong[:MAX_WRONG])
        sections.append(Section("wrong", "Wrong answers", words, table=wrong))
    return write_page(
        path,
        title,
        "an exported model on labelled records",
        _evaluation_tiles(evaluation, collapsed=bool(warning)),
        sections,
        warnings=[warning] if warning else [],
    )


def _evaluation_tiles(evaluation: ModelEvaluation, collapsed: bool) -> list[Tile]:
    total = evaluation.total
    balanced = format_percent(total.balanced_accuracy)
    majority = format_percent(total.majority)
    records = f"{int(total.table.sum()):,}"
    tiles = [
        Tile(balanced, "balanced accuracy", warn=collapsed),
        Tile(format_percent(total.accuracy), "accuracy"),
        Tile(majority, "accuracy of always answering the commonest class"),
        Tile(records, "labelled records"),
    ]
    if evaluation.skipped:
        skipped = str(len(evaluation.skipped))
        tiles.append(Tile(skipped, "files could not be read", warn=True))
    return tiles


def figure_rows(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Every figure of all records, in per cent."""
    values = {"accuracy": evaluation.accuracy}
    for name, value in evaluation.summary().items():
        values[METRIC_NAMES[name]] = value
    return [(name, f"{100 * value:.1f}") for name, value in values.items()]


def site_rows(sites: Mapping[str, Evaluation]) -> list[tuple[str, ...]]:
    """Return for each site its records, accuracy, balanced accuracy, AUC, and the
    accuracy of predicting the majority.
    """
    rows: list[tuple[str, ...]] = []
    for name, site in sites.items():
        records = f"{int(site.table.sum()):,}"
        shares = (site.accuracy, site.balanced_accuracy, site.auc, site.majority)
        cells = ["–" if share is None else f"{100 * share:.1f}" for share in shares]
        rows.append((name, records, *cells))
    return rows


def recall_rows(total: Evaluation, classes: Sequence[str]) -> list[tuple[str, ...]]:
    """Class, records, recall and its interval; classes without records are left out."""
    rows: list[tuple[str, ...]] = []
    for label, name in enumerate(classes):
        if total.counts[label] == 0:
            continue
        recall = total.of_class(label)
        records = f"{recall.records:,}"
        between = f"{100 * recall.low:.1f} to {100 * recall.high:.1f}"
        rows.append((name, records, f"{100 * recall.recall:.1f}", between))
    return rows


def predicted_event(classes: Sequence[str]) -> str:
    """What calibration compares the probabilities of."""
    return repr(classes[1]) if len(classes) == 2 else "the predicted class"


def class_figures(evaluation: Evaluation, classes: Sequence[str]) -> list[Figure]:
    """Recalls with intervals, and the confusion of up to a hundred classes."""
    tested = evaluation.counts
    rows = [_class_bar(name, evaluation, label) for label, name in enumerate(classes)]
    caption = (
        f"Recall of each class, with a 95 % interval, from {tested.min():,} to "
        f"{tested.max():,} test records of each."
    )
    if len(rows) > MAX_LISTED:
        rows = sorted(rows, key=lambda row: row[1])[:MAX_LISTED]
        caption += f" The worst {MAX_LISTED}."
    figures = [Figure(Bars(rows), caption)]
    if evaluation.calibration is not None:
        name = predicted_event(classes)
        figures.append(calibration_figure(evaluation.calibration, name))
    if len(classes) <= MAX_CONFUSED:
        figures.append(_confusion_figure(evaluation, classes))
    return figures


def calibration_figure(
    calibration: Calibration, name: str, network: str = ""
) -> Figure:
    """Probabilities against what happened; `name` is what they are of, and `network`
    whose they are, where there are several.
    """
    predicted = calibration.predicted.tolist()
    observed = calibration.observed.tolist()
    lines = [Line("observed", observed, "hero"), Line("predicted", predicted, "t1")]
    of_network = f" of {network}" if network else ""
    places = [format_percent(share) for share in predicted]
    fewest = int(calibration.records.min())
    most = int(calibration.records.max())
    caption = (
        f"Calibration{of_network}: of the records with about the same probability of {name}, "
        f"its mean (predicted) and the share that was right (observed). {fewest:,} to "
        f"{most:,} test records at each place. The mean difference is "
        f"{format_percent(calibration.error)}."
    )
    chart = LineChart(
        lines,
        "mean probability",
        "share",
        top=1.0,
        percent=True,
        x_values=places,
        height=260.0,
    )
    return Figure(chart, caption, file="" if network else "calibration")


def _confusion_figure(evaluation: Evaluation, classes: Sequence[str]) -> Figure:
    table = evaluation.table
    # a class without records has no shares: NaN, which is drawn as a dash
    with np.errstate(invalid="ignore"):
        shares = table / table.sum(axis=1, keepdims=True)
    caption = (
        "Confusion: of the test records of a class (row), the share taken for each "
        "class (column), in %."
    )
    chart = Heat(shares, classes, classes, "true class", "predicted class")
    return Figure(chart, caption, file="confusion")


def _class_bar(name: str, evaluation: Evaluation, label: int) -> tuple[str, float, str]:
    if evaluation.counts[label] == 0:
        return name, 0.0, "not tested"
    recall = evaluation.of_class(label)
    between = f"({100 * recall.low:.0f}–{100 * recall.high:.0f})"
    return name, recall.recall, f"{format_percent(recall.recall)} {between}"
