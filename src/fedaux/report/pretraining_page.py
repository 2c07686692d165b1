"""The report of pre-training: loss and label-free quality of the features over the epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedaux.report.line_chart import Line, line_chart
from fedaux.report.page import Figure, Section, Tile, write_page


def write_pretraining_page(path: Path, prototype: str, curve: Sequence[Mapping[str, Any]]) -> Path:
    """From the epochs in an extractor's card."""
    series = {"loss": [epoch["loss"] for epoch in curve]}
    series |= {name: [epoch["quality"][name] for epoch in curve] for name in ("alignment", "uniformity", "rank")}
    tiles = [Tile(f"{values[-1]:.3g}", f"{name} after {len(curve)} epochs") for name, values in series.items()]
    charts = [
        partial(line_chart, [Line("", values, f"t{i}")], "epoch", name)
        for i, (name, values) in enumerate(series.items())
    ]
    sections = [
        Section(name, name.capitalize(), figures=[Figure(chart)]) for name, chart in zip(series, charts, strict=True)
    ]
    return write_page(path, "Pre-training", prototype, tiles, sections)
