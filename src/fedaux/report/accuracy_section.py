"""Accuracy of several arms: curves, one small chart for each where they are many, bars, a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaux.report.arms import ArmResult
from fedaux.report.facts import tones
from fedaux.report.line_chart import MAX_CURVES, Line, line_chart
from fedaux.report.page import Draw, Figure, HtmlTable, Section
from fedaux.report.shapes import bars
from fedaux.report.statistics import HEADER, default_target, describe_rounds, differences, rounds_to_target
from fedaux.report.svg import text_width
from fedaux.report.tables import Cell, summary

MANY = 5  # from here on every curve also has a small chart of its own


def accuracy_section(arms: Sequence[ArmResult], runs: Mapping[str, Any], folder: Path) -> Section:
    ranked = sorted(arms, key=lambda arm: -float(arm.curves[:, -1].mean()))
    rows = [(arm.label, float(arm.curves[:, -1].mean()), percent(arm.curves[:, -1])) for arm in ranked]
    draw = partial(bars, rows, tones=tones([arm.label for arm in arms]))
    table = summary({arm.label: arm.curves for arm in arms}, "")
    cells = [
        (label, *(f"{cell} %" for cell in texts), str(len(arm.curves)))
        for arm, (label, *texts) in zip(arms, table.texts(), strict=True)
    ]
    figures = [*_curves(arms), Figure(draw, "After the last round.", file="bars")]
    return Section("accuracy", "Accuracy", "", figures, HtmlTable((*table.header, "seeds"), cells))


def statistics_sections(arms: Sequence[ArmResult], target: float | None) -> list[Section]:
    """Differences paired by seed, where there are seeds enough; rounds to a target."""
    found, sections = differences(arms), []
    if found:
        best = ", ".join(dict.fromkeys(one.reference for one in found))
        text = (
            f"Accuracy after the last round less that of {best}, paired by seed: the same seed has the same split "
            "and the same start. Intervals and p-values are Student's; p is corrected for the number of comparisons "
            "(Holm). They speak of other seeds of this setting, not of other data."
        )
        rows = [one.cells() for one in found]
        sections.append(Section("differences", "Differences", text, table=HtmlTable(HEADER, rows)))
    if len(arms) > 1 and arms[0].curves.shape[1] > 1:
        chosen = default_target(arms) if target is None else target
        rows = [(arm.label, describe_rounds(rounds_to_target(arm.curves, chosen))) for arm in arms]
        why = "" if target is not None else ", which is what the second best has after the last round"
        text = f"The first round with a test accuracy of at least {100 * chosen:g} %{why}."
        sections.append(Section("target", "Rounds to a target", text, table=HtmlTable(("", "rounds"), rows)))
    return sections


def percent(values: NDArray[np.float64]) -> str:
    return f"{Cell.of(values)} %"


def _curves(arms: Sequence[ArmResult]) -> Iterator[Figure]:
    """Where two settings vary, a chart for each value of the second; the method, if it is one, comes first."""
    keys = sorted(arms[0].labels, key=lambda key: key != "method")
    if len(keys) != 2:
        yield _curve_figure({arm.label: arm for arm in arms}, "curves")
        return
    row, column = keys
    for value in dict.fromkeys(arm.labels[column] for arm in arms):
        name = re.sub(r"[^\w.+]+", "-", f"{column} {value.split(' = ')[-1]}", flags=re.ASCII).strip("-")
        chosen = {arm.labels[row]: arm for arm in arms if arm.labels[column] == value}
        yield _curve_figure(chosen, f"curves-{name}", value)


def _curve_figure(arms: dict[str, ArmResult], file: str, title: str = "") -> Figure:
    tone, pretrained = tones(list(arms)), any(label.endswith("+P") for label in arms)
    several = any(len(arm.curves) > 1 for arm in arms.values())
    lines = {
        label: Line(
            label,
            arm.curves.mean(axis=0).tolist(),
            tone[label],
            thin=pretrained and tone[label] != "hero" and not label.endswith("+P"),
            spread=arm.curves.std(axis=0, ddof=1).tolist() if len(arm.curves) > 1 else (),
        )
        for label, arm in arms.items()
    }
    caption = f"{title}. " if title else ""
    caption += "Mean over seeds." if several else "One seed."
    if several:
        caption += " Bands are ± one standard deviation" + (
            "; above, a band appears when you point at its curve." if len(lines) > 2 else "."
        )
    caption += " Thin: from random weights; thick: pre-trained on auxiliary data." if pretrained else ""
    caption += " Dashes in several colours: curves that lie on each other."
    shown = list(lines.values()) if len(lines) <= MAX_CURVES else _extremes(list(lines.values()))
    if len(shown) < len(lines):
        caption += f" Above: the {len(shown)} best of {len(lines)} after the last round; below: all of them."
    draw = partial(line_chart, shown, "round", "test accuracy", top=1.0, percent=True)
    return Figure(draw, caption, file=file, title=title, panels=_panels(lines) if len(lines) >= MANY else ())


def _extremes(lines: list[Line]) -> list[Line]:
    best = sorted(lines, key=lambda line: -line.values[-1])[:MAX_CURVES]
    return [line for line in lines if line in best]


def _panels(lines: Mapping[str, Line]) -> list[tuple[str, Draw]]:
    """A method with and without pre-training, before all the others in grey."""
    together: dict[str, list[Line]] = {}
    for label, line in lines.items():
        together.setdefault(label.removesuffix("+P"), []).append(line)
    return [
        (
            base,
            partial(
                line_chart,
                [Line(_short(line.label, base), line.values, line.tone, line.thin, line.spread) for line in chosen],
                "round",
                "",
                height=170.0,
                top=1.0,
                percent=True,
                room=text_width(["+P"]),
                behind=[line.values for line in lines.values() if line not in chosen],
            ),
        )
        for base, chosen in together.items()
    ]


def _short(label: str, base: str) -> str:
    """Below the name of its panel."""
    return "+P" if label != base else ""
