"""How well each class is recognised: recalls with intervals, confusion, and all figures beside their baseline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from fedaux.core.metrics import METRIC_NAMES, Evaluation
from fedaux.report.facts import MAX_LISTED, RunFacts, confusion
from fedaux.report.page import Figure, HtmlTable, Section
from fedaux.report.shapes import bars, heat


def classes_section(facts: RunFacts) -> Section:
    figures = class_figures(Evaluation(confusion(facts.state)), facts.classes)
    return Section("classes", "Classes", "", figures, _figures_table(facts))


def class_figures(evaluation: Evaluation, classes: Sequence[str]) -> list[Figure]:
    """Recalls, and the confusion of up to a hundred classes."""
    table, tested = evaluation.table, evaluation.counts
    with np.errstate(invalid="ignore"):
        shares = table / table.sum(axis=1, keepdims=True)
    rows = [_class_row(name, evaluation, label) for label, name in enumerate(classes)]
    worst = sorted(rows, key=lambda row: row[1])[:MAX_LISTED] if len(rows) > MAX_LISTED else rows
    caption = f"Recall of each class, with a 95 % interval; {tested.min():,} to {tested.max():,} test records of each."
    more = f" The worst {MAX_LISTED}." if len(rows) > MAX_LISTED else ""
    figures = [Figure(partial(bars, worst, "t0"), caption + more)]
    if len(rows) <= 100:
        caption = "Confusion: of the test records of a class (row), the share taken for each class (column), in %."
        chart = partial(heat, shares, classes, classes, "true class", "predicted class")
        figures.append(Figure(chart, caption, file="confusion"))
    return figures


def _class_row(name: str, evaluation: Evaluation, label: int) -> tuple[str, float, str]:
    if evaluation.counts[label] == 0:
        return name, 0.0, "not tested"
    one = evaluation.of_class(label)
    return name, one.recall, f"{100 * one.recall:.1f} % ({100 * one.low:.0f}–{100 * one.high:.0f})"


def _figures_table(facts: RunFacts) -> HtmlTable | None:
    """All figures of each prototype after the last round, beside its baseline."""
    metrics = facts.state.history[-1].metrics
    names = [name for name in METRIC_NAMES if any(name in each for each in metrics.values())]
    if not names:
        return None
    rows = [
        (
            label,
            f"{100 * facts.state.history[-1].accuracy[label]:.1f} %",
            *(f"{100 * each[name]:.1f} %" if name in each else "–" for name in names),
        )
        for label, each in metrics.items()
    ]
    return HtmlTable(("network", "accuracy", *(METRIC_NAMES[name] for name in names)), rows)
