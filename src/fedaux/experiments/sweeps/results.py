"""What a sweep leaves beside its runs: tables in four formats, pictures, and everything as one JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaux.core.io import write_atomically
from fedaux.data.federated import open_data
from fedaux.experiments.sweeps.engine import Swept
from fedaux.experiments.sweeps.grid import SYMBOLS, Sweep
from fedaux.report.comparison_page import write_comparison
from fedaux.report.pictures import draw_curves, draw_split
from fedaux.report.tables import SPREAD, latex, markdown, pivot, runs_csv, summary, summary_csv


def write_results(found: Swept) -> Swept:
    """report.html, table.md, table.csv, table.tex, runs.csv, sweep.json and pictures in the sweep's folder."""
    if not found.arms:
        found.check()  # nothing to show but what went wrong
    caption, pivoted = caption_of(found.sweep), pivot(found.arms)
    table = summary(found.curves, first_column(found.sweep))
    text, tex = f"{caption}\n\n{markdown(table.texts(), table.header)}", latex(table, caption, found.privacy)
    if pivoted:
        text += f"\nAfter the last round:\n\n{markdown(pivoted.texts(), pivoted.header)}"
        tex += "\n" + latex(pivoted, f"{caption} After the last round.", found.privacy)
    files = {
        "table.md": f"{text}\n{found.privacy}\n" if found.privacy else text,
        "table.tex": tex,
        "table.csv": summary_csv(found.arms),
        "runs.csv": runs_csv(found.arms),
        "sweep.json": json.dumps(found.to_dict(), indent=1, ensure_ascii=False),
    }
    for name, content in files.items():
        write_atomically(found.folder / name, content.encode())
    title = found.sweep.title or "Methods side by side"
    return replace(found, pictures=_draw(found), report=write_comparison(found.folder, title, found.arms))


def first_column(sweep: Sweep) -> str:
    return "method" if list(sweep.axes) in ([], ["method"]) else "arm"


def caption_of(sweep: Sweep) -> str:
    """What all arms have in common; what varies stands in the table."""
    base, axes = sweep.base, sweep.axes
    facts = {
        "data.source": base.data.source,
        "data.clients": f"{base.data.clients} clients",
        "data.alpha": f"{SYMBOLS['data.alpha']} = {base.data.alpha:g}",
        "prototypes": ", ".join(spec.label for spec in base.prototypes),
        "rounds": f"{base.rounds} round{'s' * (base.rounds > 1)}",
    }
    common = ", ".join(fact for key, fact in facts.items() if key not in axes)
    title = f"{sweep.title}. " if sweep.title else ""
    spread = f" {SPREAD}" if sweep.seeds > 1 else ""
    return f"{title}Test accuracy in %: {common}, {sweep.seeds} seed(s).{spread}"


def _draw(found: Swept) -> tuple[Path, ...]:
    """The split, where all arms have the same, and curves; of a two-way sweep, those of each column of its table."""
    base, axes = found.sweep.base, found.sweep.axes
    setting = f"{base.data.source}, {base.data.clients} clients, α = {base.data.alpha:g}"
    networks = ", ".join(spec.label for spec in base.prototypes)
    pictures = []
    if base.data.partition != "own" and not any(key.startswith(("data.", "aux.")) for key in axes):
        data = open_data(base)
        pictures.append(found.folder / "split.png")
        draw_split(data.counts(), data.classes, pictures[-1], f"Who holds what: {setting}")
    if list(axes) in ([], ["method"]):
        title = f"{setting}, {networks}, ε = {base.privacy.epsilon:g} for FedAUX"
        pictures.append(found.folder / "curves.png")
        draw_curves(found.curves, pictures[-1], title)
        return tuple(pictures)
    for name, title, curves in _groups(found):
        pictures.append(found.folder / f"curves{name}.png")
        draw_curves(curves, pictures[-1], title)
    return tuple(pictures)


def _groups(found: Swept) -> Iterator[tuple[str, str, Mapping[str, NDArray[np.float64]]]]:
    """(end of a file's name, title, curves by label) of each picture."""
    keys = sorted(found.sweep.axes, key=lambda key: key != "method")
    if len(keys) != 2:
        yield "", found.sweep.title or f"{len(found.arms)} arms", found.curves
        return
    rows, columns = keys
    for value in dict.fromkeys(arm.words[columns] for arm in found.arms):
        curves = {arm.words[rows]: arm.curves for arm in found.arms if arm.words[columns] == value}
        slug = re.sub(r"[^\w.+]+", "-", f"{columns} {value.split(' = ')[-1]}", flags=re.ASCII)
        yield f"-{slug.strip('-')}", f"{found.sweep.title}, {value}".lstrip(", "), curves
